"""`tuner ci`: fails a build when a kernel is slower than the database recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner import units
from tuner.cli import documents
from tuner.cli.exits import Exit
from tuner.cli.invocation import Invocation
from tuner.cli.workloads import (
    Notation,
    Shapes,
    Specs,
    TargetText,
    Threads,
    finite_percent,
    read_workloads,
)
from tuner.measure.statistics import disturbed

if TYPE_CHECKING:
    from tuner.app.races.loss import Checked
    from tuner.app.races.race import Entry
    from tuner.db.kernels import Kernel
    from tuner.workload.workload import Workload


def ci(
    context: typer.Context,
    specs: Specs = None,
    notation: Notation = None,
    shapes: Shapes = None,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance",
            metavar="PCT",
            min=0.0,
            callback=finite_percent,
            help="percent by which a kernel may pass its recorded interval",
        ),
    ] = 0.0,
    target: TargetText = None,
    threads: Threads = None,
) -> None:
    """Times the kernels of the database again, or those of the SPECs, and exits with 6
    where one takes longer than its recorded interval or no longer runs."""
    invocation = Invocation.of(context)
    invocation.database_settings()
    workloads = read_workloads(specs, notation, shapes) if specs or notation or shapes else []
    settings = invocation.settings(target=target, threads=threads).values
    from tuner.app.machine import checked_target
    from tuner.app.races.loss import check, recorded_kernels
    from tuner.app.races.race import race_kernel

    machine = checked_target(settings)
    with invocation.database() as database:
        recorded = recorded_kernels(database, machine, settings.threads, workloads)

    def race(workload: Workload, kernel: Kernel) -> Entry:
        return race_kernel(workload, kernel, machine, settings, []).entries[0]

    checked = []
    for number, (workload, kernel) in enumerate(recorded, start=1):
        invocation.output.note(f"{number} of {len(recorded)}: {workload.spec}")
        checked.append(check(workload, kernel, race, tolerance / 100.0))
    _print(invocation, checked)
    if any(each.verdict != "kept" for each in checked):
        raise typer.Exit(Exit.REGRESSION)


def _print(invocation: Invocation, checked: Sequence[Checked]) -> None:
    output = invocation.output
    for each in checked:
        if each.error is not None:
            output.warning(each.error)
    if output.as_json:
        output.items([_document(each) for each in checked])
        return
    columns = ("workload", "kernel", "recorded", "its interval", "now", "interval", "slower", "")
    output.table(columns, [_row(each) for each in checked], right=("recorded", "now", "slower"))
    counts = Counter(each.verdict for each in checked)
    output.line(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))


def _document(each: Checked) -> dict[str, Any]:
    kernel = each.kernel
    return {
        "workload": documents.workload(each.workload),
        "kernel": kernel.id,
        "verdict": each.verdict,
        "recorded": {"median_s": kernel.median_s, "ci95_s": list(kernel.ci95_s)},
        "now": None if each.entry is None else _times(each.entry),
        "slower_percent": each.slower_percent,
        "error": each.error,
    }


def _times(entry: Entry) -> dict[str, Any]:
    return {
        "median_s": entry.median_s,
        "ci95_s": list(entry.ci95_s),
        "disturbed": disturbed(entry.median_s, entry.ci95_s),
    }


def _row(each: Checked) -> tuple[str, ...]:
    kernel, entry = each.kernel, each.entry
    now = (
        (units.DASH, units.DASH)
        if entry is None
        else (units.seconds(entry.median_s), _interval(entry.ci95_s))
    )
    percent = each.slower_percent
    slower = units.DASH if percent is None else f"{percent:+.1f}%"
    recorded = (units.seconds(kernel.median_s), _interval(kernel.ci95_s))
    return (each.workload.spec, kernel.id, *recorded, *now, slower, each.verdict)


def _interval(ends_s: tuple[float, float]) -> str:
    return f"{units.seconds(ends_s[0])} to {units.seconds(ends_s[1])}"
