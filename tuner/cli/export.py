"""`tuner export`: promoted kernels as a library that does not need tuner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner import units
from tuner.cli.invocation import Invocation
from tuner.cli.workloads import (
    CacheText,
    Notation,
    ObjectiveText,
    Shapes,
    TargetText,
    Threads,
    Traffic,
    WithinPercent,
    families_of,
    read_workloads,
)
from tuner.errors import UsageError
from tuner.measure.cache import Cache, refuse_cold
from tuner.measure.objective import refuse_goal

if TYPE_CHECKING:
    from tuner.cli.backend.roles import Exported
    from tuner.workload.workload import Workload


def export(
    context: typer.Context,
    kernels: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KERNEL...",
            help="ids of kernels, as tuner best lists them, or a SPEC with a range",
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="every promoted kernel of this machine")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="new, empty, or an earlier export"),
    ] = None,
    threads: Threads = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="LIB", help="the library's name, a C identifier")
    ] = None,
    public_key: Annotated[
        str | None,
        typer.Option(
            "--public-key",
            metavar="KEY",
            help="from a service: who must have signed it, as ed25519:HEX or a file",
        ),
    ] = None,
    isa: Annotated[
        str | None,
        typer.Option(
            "--isa",
            metavar="LEVELS",
            help="levels of x86-64 to compile for besides, e.g. x86-64-v3,x86-64",
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="library, or the schedules alone: metaschedule, tvmscript",
        ),
    ] = "library",
    traffic: Traffic = None,
    target: TargetText = None,
    notation: Notation = None,
    shapes: Shapes = None,
    cache: CacheText = None,
    objective: ObjectiveText = None,
    within: WithinPercent = None,
    frameworks: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="FRAMEWORKS",
            help="what the library is for besides C: torch, jax, onnxruntime",
        ),
    ] = None,
) -> None:
    """Writes a shared library with its C and C++ headers, manifest, Python package and examples."""
    from tuner.cli.backend.roles import ExportRequest
    from tuner.export.frameworks import checked_frameworks
    from tuner.export.signature import public_key_of
    from tuner.workload.pattern_files import spec_with_file

    invocation = Invocation.of(context)
    if output is None:
        raise UsageError("export needs a directory; add -o DIR")
    kernels = [spec_with_file(name) for name in kernels or ()]  # whose paths may have dots
    ranged = any(".." in name for name in kernels)
    if target is not None and not ranged:
        _refuse(
            {
                "--all": every,
                "--traffic": traffic,
                "--cache": cache,
                "--objective": objective,
                "--within": within,
                "--isa": isa,
                "--format": form != "library",
                "--for": frameworks,
                "--public-key": public_key,
            },
            f"is for kernels that were tuned, and those for --target {target} are exported "
            f"unmeasured",
        )
        workloads = _workloads(kernels, notation, shapes)
        return _estimated(Invocation.here(context), workloads, output, name, threads, target)
    if notation is not None or shapes is not None:
        raise UsageError(
            "--notation and --shapes are for kernels of a declared CPU, exported unmeasured: add "
            "--target cpu:NAME (tuner targets lists them), or tune and name the kernel by its id"
        )
    if every == bool(kernels):
        raise UsageError(
            "name kernels by their ids, as tuner best lists them, or give --all; one of the two"
        )
    flags: dict[str, Any] = {
        "threads": threads,
        "target": target,
        "cache": cache,
        "objective": objective,
    }
    settings = invocation.settings(**flags).values
    if (objective or within is not None) and not every:
        raise UsageError("--objective and --within choose among kernels; give --all with them")
    if ranged:
        refuse_cold(settings.cache, "a range becomes one function of kernels that were timed warm")
    chosen = () if frameworks is None else checked_frameworks(frameworks, name or "")
    if form != "library":
        if frameworks is not None:
            raise UsageError(f"--for {frameworks}: schedules alone are for TVM; leave out --for")
        here = Invocation.here(context)
        refuse_goal(settings.goal, f"--format {form} takes the fastest")
        _refuse(
            {
                "--name": name,
                "--isa": isa,
                "--public-key": public_key,
                "--traffic": traffic,
                "--within": within,
            },
            f"is for libraries, and --format {form} writes schedules alone",
        )
        return _schedules(here, kernels or [], every, output, form, settings.cache)
    for spec in kernels:
        if ":" in spec and ".." not in spec:
            raise UsageError(
                f"{spec} has no range; a single kernel is named by its id, which tuner best {spec} "
                f"prints"
            )
    request = ExportRequest(
        ids=tuple(name for name in kernels or () if ".." not in name),
        families=families_of([name for name in kernels or () if ".." in name], traffic),
        every=every,
        directory=output,
        name=name,
        public_key=None if public_key is None else public_key_of(public_key),
        isa=isa,
        frameworks=chosen,
        within=None if within is None else within / 100,
    )
    with invocation.backend(**flags) as backend:
        libraries = backend.kernels.export(request)
    _report(invocation, output, libraries)


def _report(invocation: Invocation, directory: Path, libraries: Sequence[Exported]) -> None:
    if not invocation.output.as_json:
        for library in libraries:
            _print(invocation, library)
    elif len(libraries) == 1:
        invocation.output.document(_document(libraries[0]))
    else:
        invocation.output.document(
            {
                "directory": str(directory),
                "libraries": [_document(library) for library in libraries],
            }
        )


def _refuse(given: Mapping[str, object], why: str) -> None:
    """Refuses options that would decide nothing. Raises UsageError for the first."""
    for option, value in given.items():
        if value is not None and value is not False:
            raise UsageError(f"{option} {why}; leave out one of the two")


def _workloads(
    specs: Sequence[str], notation: str | None, shapes: str | None
) -> Sequence[Workload]:
    """What unmeasured kernels are of. Raises UsageError, also for the id of a kernel."""
    for spec in specs:
        if ":" not in spec:
            raise UsageError(
                f"{spec} is no SPEC, such as matmul:M=512,N=512,K=512; a kernel that was tuned is "
                f"exported by its id, without --target"
            )
    return read_workloads(specs, notation, shapes)


def _estimated(
    invocation: Invocation,
    workloads: Sequence[Workload],
    directory: Path,
    name: str | None,
    threads: int | None,
    target: str,
) -> None:
    """Writes a library of unmeasured kernels for a CPU that is not here."""
    from tuner.app.export.estimated import export_estimated
    from tuner.cli.backend.roles import Exported

    settings = invocation.settings(target=target, threads=threads).values
    manifest = export_estimated(workloads, settings, directory, name)
    _report(
        invocation, directory, [Exported(directory=directory, manifest=dict(manifest.document()))]
    )
    invocation.output.note(
        f"nothing of it was measured or verified: it is what the estimate of {target} ranks first"
    )


def _schedules(
    invocation: Invocation,
    ids: list[str],
    every: bool,
    directory: Path,
    form: str,
    cache: Cache,
) -> None:
    """Writes the kernels' schedules instead of their code, for users of TVM."""
    from tuner.app.export.kernels import all_kernels, chosen_kernels
    from tuner.app.export.schedules import FORMATS, export_schedules

    if form not in FORMATS:
        raise UsageError(f"unknown format {form!r}; give library, {' or '.join(FORMATS)}")
    with invocation.database() as database:
        chosen = all_kernels(database, cache) if every else chosen_kernels(database, ids)
        files = export_schedules(database, chosen, directory, form)
    if invocation.output.as_json:
        invocation.output.document(
            {"directory": str(directory), "format": form, "files": list(files)}
        )
    else:
        invocation.output.line(f"{directory}: {', '.join(files)}")


def _document(library: Exported) -> dict[str, Any]:
    """A library as JSON values: its directory and its manifest."""
    return {"directory": str(library.directory), **library.manifest}


def _measured(function: Mapping[str, Any]) -> bool:
    return bool(function.get("measured", True))


def _print(invocation: Invocation, library: Exported) -> None:
    manifest = library.manifest
    signed = f"signed by {manifest['public_key']}" if manifest.get("public_key") else "not signed"
    invocation.output.line(
        f"{library.directory / manifest['library']}, {len(manifest['files'])} files, {signed}"
    )
    rows = [
        (
            str(function["symbol"]),
            units.seconds(float(function["median_s"])) if _measured(function) else units.DASH,
            str(function["threads"]),
            ", ".join(
                f"{argument['name']}: {argument['dtype']}{argument['shape']}"
                for argument in function["arguments"]
            ),
        )
        for function in manifest["functions"]
    ]
    invocation.output.table(
        ("function", "median", "threads", "arguments"), rows, right=("median", "threads")
    )
