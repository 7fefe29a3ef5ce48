"""`tuner verify`: an exported directory, checked and re-timed on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner import units
from tuner.cli import documents
from tuner.cli.exits import Exit
from tuner.cli.invocation import Invocation
from tuner.cli.workloads import DeviceCommands, device_setting, finite_percent
from tuner.measure.statistics import disturbed

if TYPE_CHECKING:
    from tuner.app.export.verdicts import FunctionVerdict, LibraryVerdict


def verify(
    context: typer.Context,
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="a directory that tuner export wrote")
    ],
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            min=0,
            max=2**63 - 1,
            help="of the inputs; without it, a fresh one",
        ),
    ] = None,
    public_key: Annotated[
        str | None,
        typer.Option(
            "--public-key",
            metavar="KEY",
            help="the signer's, as ed25519:HEX or a file; any other signature is refused",
        ),
    ] = None,
    sanitize: Annotated[
        str | None,
        typer.Option(
            "--sanitize",
            metavar="TOOLS",
            help="of GPUs: also under compute-sanitizer; all, or some of "
            "memcheck,racecheck,synccheck,initcheck",
        ),
    ] = None,
    device: DeviceCommands = None,
    fail_if_slower: Annotated[
        float | None,
        typer.Option(
            "--fail-if-slower",
            metavar="PCT",
            min=0.0,
            callback=finite_percent,
            help="exit code 6 when a function tuned here takes longer than its manifest says by "
            "more than PCT percent",
        ),
    ] = None,
) -> None:
    """Checks an exported library's hashes, runs every function against the reference on
    unseen inputs, and re-times it, here or on a device."""
    invocation = Invocation.here(context)
    verification = _verified(invocation, directory, seed, public_key, sanitize, device)
    if verification.unlisted:
        invocation.output.warning(
            f"{directory} holds files that its manifest does not list: "
            f"{', '.join(map(ascii, verification.unlisted))}"
        )
    if invocation.output.as_json:
        invocation.output.document(_document(directory, verification))
    else:
        _print(invocation, directory, verification)
    if not verification.ok:
        raise typer.Exit(Exit.FAILED)
    if fail_if_slower is not None and verification.slower_percent > fail_if_slower:
        raise typer.Exit(Exit.REGRESSION)


def _verified(
    invocation: Invocation,
    directory: Path,
    seed: int | None,
    public_key: str | None,
    sanitize: str | None,
    device: DeviceCommands,
) -> LibraryVerdict:
    """The verification. Ends a command with --json here for a directory that is no export."""
    from tuner.app.export.verify import verify_export
    from tuner.export.errors import ManifestError
    from tuner.export.signature import public_key_of
    from tuner.measure.gpu.sanitizer import parse_tools

    settings = invocation.settings(device=device_setting(device)).values
    required = None if public_key is None else public_key_of(public_key)
    try:
        return verify_export(
            directory,
            settings,
            seed=seed,
            public_key=required,
            sanitize=() if sanitize is None else parse_tools(sanitize),
            on_device=bool(device),
            progress=lambda symbol: invocation.output.note(f"running {symbol}"),
        )
    except ManifestError as error:
        if not invocation.output.as_json:
            raise
        invocation.output.document(
            {"directory": str(directory), "ok": False, "error": str(error), "functions": []}
        )
        raise typer.Exit(Exit.FAILED) from None


def _document(directory: Path, verification: LibraryVerdict) -> dict[str, Any]:
    """The verification as JSON values."""
    return {
        "directory": str(directory),
        "ok": verification.ok,
        "error": None if verification.ok else "not every function is right on this machine",
        "name": verification.manifest.name,
        "public_key": verification.manifest.public_key,
        "files": len(verification.manifest.files),
        "unlisted": list(verification.unlisted),
        "machine": documents.target(verification.machine),
        "seed": verification.seed,
        "functions": [_function(verdict) for verdict in verification.functions],
    }


def _function(verdict: FunctionVerdict) -> dict[str, Any]:
    """The verdict on a function as JSON values."""
    from tuner.app.export.verdicts import Retimed

    retimed = verdict.result if isinstance(verdict.result, Retimed) else None
    return {
        "symbol": verdict.symbol,
        "workload": verdict.spec,
        "ok": retimed is not None,
        "error": None if retimed is not None else str(verdict.result),
        "max_rel_error": retimed.max_rel_error if retimed else None,
        "median_s": retimed.median_s if retimed else None,
        "ci95_s": list(retimed.ci95_s) if retimed else None,
        "disturbed": disturbed(retimed.median_s, retimed.ci95_s) if retimed else None,
        "manifest_median_s": verdict.manifest_median_s,
        "ratio": retimed.ratio if retimed else None,
        "same_target": verdict.same_target,
        "threads": retimed.threads if retimed else None,
        "variants": dict(retimed.variants) if retimed else None,
        "sanitized": list(retimed.sanitized) if retimed else None,
    }


def _print(invocation: Invocation, directory: Path, verification: LibraryVerdict) -> None:
    output = invocation.output
    manifest, functions = verification.manifest, verification.functions
    signed = f"signed by {manifest.public_key}" if manifest.public_key else "not signed"
    output.line(
        f"{directory}: {len(manifest.files)} files have their hashes, {signed}; inputs of "
        f"seed {verification.seed}"
    )
    rows = [_row(_function(verdict)) for verdict in functions]
    columns = ("function", "verdict", "error", "median here", "manifest", "here/manifest")
    output.table(columns, rows, right=columns[2:])
    for verdict in functions:
        if isinstance(verdict.result, Exception):
            output.warning(str(verdict.result))
    clean = {
        tool: None
        for verdict in functions
        if not isinstance(verdict.result, Exception)
        for tool in verdict.result.sanitized
    }
    if clean:
        output.note(f"compute-sanitizer found nothing in what is right: {', '.join(clean)}")
    if functions and not any(verdict.same_target for verdict in functions):
        output.note("it was tuned for another machine: times differ for that reason too")


def _row(function: dict[str, Any]) -> tuple[str, ...]:
    """The verdict on a function as a row of the table."""
    return (
        function["symbol"],
        "right" if function["ok"] else "failed",
        f"{function['max_rel_error']:.1e}" if function["ok"] else units.DASH,
        units.seconds(function["median_s"]),
        units.seconds(function["manifest_median_s"]),
        units.ratio(function["ratio"]),
    )
