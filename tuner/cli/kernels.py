"""`tuner best`, `promote` and `rollback`: champions, canaries, and a return to the one before."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner import units
from tuner.cli import documents
from tuner.cli.invocation import Invocation
from tuner.cli.results import speed_up
from tuner.cli.workloads import Notation, Shapes, read_workload


def best(
    context: typer.Context,
    spec: Annotated[
        str | None, typer.Argument(metavar="SPEC", help="only kernels of this workload")
    ] = None,
    notation: Notation = None,
    shapes: Shapes = None,
    canaries: Annotated[
        bool, typer.Option("--canaries", help="those that are to take a promoted one's place")
    ] = False,
) -> None:
    """Lists the promoted kernels in the database, or those of one workload; each with
    its time and its lead on the default."""
    invocation = Invocation.of(context)
    asked = spec is not None or notation is not None or shapes is not None
    key = read_workload(spec, notation, shapes).key if asked else None
    with invocation.backend() as backend:
        listed = backend.kernels.canaries() if canaries else backend.kernels.list(workload=key)
    if canaries and key is not None:
        listed = [kernel for kernel in listed if kernel.workload.key == key]
    if invocation.output.as_json:
        invocation.output.items([documents.kernel(kernel) for kernel in listed])
        return
    if not listed:
        invocation.output.note("no kernel yet; tuner tune SPEC makes one")
    rows = [
        (
            kernel.id,
            kernel.workload.spec,
            str(kernel.threads),
            units.seconds(kernel.median_s),
            units.rate(kernel.gflops or None),
            units.percent(kernel.roofline_fraction),
            units.ratio(speed_up(kernel)),
            kernel.target.name,
            documents.remarks(kernel),
        )
        for kernel in listed
    ]
    columns = (
        "kernel",
        "workload",
        "threads",
        "median",
        "speed",
        "of roofline",
        "default/kernel",
        "target",
        "",
    )
    invocation.output.table(columns, rows, right=columns[2:7])


def promote(
    context: typer.Context,
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="a canary's id")],
) -> None:
    """Promotes a canary at once, without waiting for the races it has yet to win; tuner
    rollback takes that back."""
    invocation = Invocation.of(context)
    with invocation.backend() as backend:
        promoted = backend.kernels.promote(kernel)
    if invocation.output.as_json:
        invocation.output.document(documents.kernel(promoted))
        return
    before = f" in place of {promoted.previous}" if promoted.previous else ""
    invocation.output.line(f"kernel {kernel} of {promoted.workload.spec} is promoted{before}")


def rollback(
    context: typer.Context,
    kernel: Annotated[
        str, typer.Argument(metavar="KERNEL", help="a promoted kernel's or canary's id")
    ],
) -> None:
    """Takes a promoted kernel back and promotes the one it replaced, at one stroke; who
    asks meanwhile gets one of the two. A canary is withdrawn, and its champion stays."""
    invocation = Invocation.of(context)
    with invocation.backend() as backend:
        done = backend.kernels.rollback(kernel)
    promoted = done.promoted
    if invocation.output.as_json:
        document = {
            "rolled_back": done.rolled_back,
            "promoted": None if promoted is None else documents.kernel(promoted),
        }
        invocation.output.document(document)
    elif promoted is None:
        invocation.output.line(
            f"kernel {kernel} is rolled back; its workload has no kernel now, tuner tune makes one"
        )
    else:
        invocation.output.line(
            f"kernel {kernel} is rolled back; {promoted.id} of {promoted.workload.spec} is "
            f"promoted again"
        )
