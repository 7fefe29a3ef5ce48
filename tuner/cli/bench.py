"""`tuner bench`: stored kernels raced against the default schedule and libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner import units
from tuner.cli import documents
from tuner.cli.exits import Exit
from tuner.cli.invocation import Invocation
from tuner.cli.workloads import (
    CacheText,
    Notation,
    Shapes,
    Specs,
    TargetText,
    Threads,
    finite_percent,
    read_workloads,
)
from tuner.errors import UsageError
from tuner.measure.cache import check_cache
from tuner.measure.statistics import disturbed

if TYPE_CHECKING:
    from tuner.app.races.race import Race


def bench(
    context: typer.Context,
    specs: Specs = None,
    notation: Notation = None,
    shapes: Shapes = None,
    against: Annotated[
        str,
        typer.Option(
            "--against",
            metavar="NAME,...",
            help="rivals: default (the default schedule), numpy, torch, onednn",
        ),
    ] = "default,numpy",
    fail_if_slower: Annotated[
        float | None,
        typer.Option(
            "--fail-if-slower",
            metavar="PCT",
            min=0.0,
            callback=finite_percent,
            help="exit code 6 when the fastest rival is faster by more than PCT percent",
        ),
    ] = None,
    target: TargetText = None,
    threads: Threads = None,
    cache: CacheText = None,
) -> None:
    """Races the stored kernel of each workload against rivals: in turn, in fresh
    processes, on the same cores."""
    invocation = Invocation.of(context)
    invocation.database_settings()
    workloads = read_workloads(specs, notation, shapes)
    settings = invocation.settings(target=target, threads=threads, cache=cache).values
    from tuner.app.machine import checked_target
    from tuner.app.races.race import check_rivals, find_kernel, race_kernel

    rivals = [name.strip() for name in against.split(",") if name.strip()]
    check_rivals(rivals)
    machine = checked_target(settings)
    check_cache(settings.cache, machine)
    with invocation.database() as database:
        stored = [
            (workload, find_kernel(database, workload, machine, settings.threads, settings.cache))
            for workload in workloads
        ]
    races = []
    for workload, kernel in stored:
        invocation.output.note(f"racing {workload.spec} against {', '.join(rivals)}")
        races.append(race_kernel(workload, kernel, machine, settings, rivals))
    _print(invocation, races)
    if fail_if_slower is not None:
        _check_regression(races, fail_if_slower)


def _print(invocation: Invocation, races: Sequence[Race]) -> None:
    for race in races:
        for name, reason in race.absent.items():
            invocation.output.warning(f"{name} did not take part in {race.workload.spec}: {reason}")
    if invocation.output.as_json:
        invocation.output.document({"results": [_document(race) for race in races]})
        return
    rows = [row for race in races for row in _rows(race)]
    invocation.output.table(
        ("workload", "contestant", "median", "95% interval", "time/kernel"),
        rows,
        right=("median", "time/kernel"),
    )


def _check_regression(races: Sequence[Race], percent: float) -> None:
    """Ends the command where a rival is faster by more than `percent`.

    Raises UsageError for a race without a rival.
    """
    if unrivalled := [race.workload.spec for race in races if not race.ratios]:
        raise UsageError(
            f"--fail-if-slower has nothing to compare {unrivalled[0]} with: no rival took part; "
            f"name others with --against"
        )
    if any(race.slower_percent > percent for race in races):
        raise typer.Exit(Exit.REGRESSION)


def _document(race: Race) -> dict[str, Any]:
    """A race as JSON values."""
    return {
        "workload": documents.workload(race.workload),
        "kernel": race.kernel.id,
        "entries": [
            {
                "name": entry.name,
                "median_s": entry.median_s,
                "ci95_s": list(entry.ci95_s),
                "disturbed": disturbed(entry.median_s, entry.ci95_s),
            }
            for entry in race.entries
        ],
        "ratios": race.ratios,
        "absent": race.absent,
    }


def _rows(race: Race) -> list[tuple[str, ...]]:
    """A race as rows of the table; the first one names the workload."""
    return [
        (
            race.workload.spec if entry is race.entries[0] else "",
            entry.name,
            units.seconds(entry.median_s),
            f"{units.seconds(entry.ci95_s[0])} to {units.seconds(entry.ci95_s[1])}"
            + (", disturbed" if disturbed(entry.median_s, entry.ci95_s) else ""),
            units.ratio(race.ratios.get(entry.name, 1.0)),
        )
        for entry in race.entries
    ]
