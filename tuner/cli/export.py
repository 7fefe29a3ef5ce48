"""`tuner export`: promoted kernels as a library that needs nothing of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli import units
from tuner.cli.invocation import Invocation
from tuner.cli.workloads import Threads
from tuner.errors import UsageError


def export(
    context: typer.Context,
    kernels: Annotated[
        list[str] | None,
        typer.Argument(metavar="KERNEL...", help="ids of kernels, as tuner best lists them, or a SPEC with a range"),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="every promoted kernel of this machine")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="DIR", help="new, empty, or an earlier export")] = None,
    threads: Threads = None,
    name: Annotated[str, typer.Option("--name", metavar="LIB", help="the library's name, a C identifier")] = "tuned",
) -> None:
    """Writes a shared library with its C and C++ headers, manifest, Python package and examples."""
    from tuner.app.export import all_kernels, chosen_kernels, export_kernels
    from tuner.app.machine import checked_target
    from tuner.app.portfolio import portfolio_kernel
    from tuner.export.artifacts import ArtifactStore
    from tuner.export.signature import KEY_FILE
    from tuner.workload.spec import parse_portfolio

    invocation = Invocation.of(context)
    if output is None:
        raise UsageError("export needs a directory; add -o DIR")
    if every == bool(kernels):
        raise UsageError("name kernels by their ids, as tuner best lists them, or give --all; one of the two")
    settings = invocation.settings(threads=threads).values
    families = [parse_portfolio(one) for one in kernels or () if ".." in one]
    ids = [one for one in kernels or () if ".." not in one]
    store = ArtifactStore(settings.artifacts)
    with invocation.database() as database:
        found = all_kernels(database) if every else chosen_kernels(database, ids)
        machine = checked_target(settings) if families else None
        portfolios = [portfolio_kernel(database, one, machine, settings.threads, store) for one in families if machine]
        manifest = export_kernels(
            database,
            found,
            settings.artifacts,
            output,
            name,
            portfolios=portfolios,
            signing_key=settings.data_dir / KEY_FILE,
        )
    if invocation.output.as_json:
        invocation.output.document({"directory": str(output), **manifest.document()})
        return
    rows = [
        (
            str(function["symbol"]),
            units.seconds(float(function["median_s"])),
            str(function["threads"]),
            ", ".join(f"{argument['name']}: {argument['dtype']}{argument['shape']}" for argument in function["arguments"]),
        )
        for function in manifest.functions
    ]
    invocation.output.line(f"{output / manifest.library}, {len(manifest.files)} files, signed by {manifest.public_key}")
    invocation.output.table(("function", "median", "threads", "arguments"), rows, right=("median", "threads"))
