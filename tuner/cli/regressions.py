"""`tuner regressions`: what promoted kernels lost, and the races that say so."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner import units
from tuner.api.race_schemas import RacesAnswer, RegressionAnswer
from tuner.cli.invocation import Invocation

RAISED = "raised"


def regressions(
    context: typer.Context,
    kernel: Annotated[
        str | None, typer.Argument(metavar="KERNEL", help="show the races of this kernel instead")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="also suspected, dismissed and resolved ones")
    ] = False,
) -> None:
    """Lists kernels that are slower than they were, were overtaken by a library, or fail;
    with a kernel, its races over time."""
    invocation = Invocation.of(context)
    with invocation.backend() as backend:
        if kernel is not None:
            _show_races(invocation, backend.kernels.races(kernel))
            return
        states = (RAISED, "suspected", "dismissed", "resolved") if every else (RAISED,)
        listed = backend.kernels.regressions(states=states)
    if invocation.output.as_json:
        invocation.output.items([each.model_dump(mode="json") for each in listed])
        return
    if not listed:
        invocation.output.note("no promoted kernel is known to have lost anything")
    rows = [_row(each) for each in listed]
    columns = ("kernel", "what", "by", "factor", "state", "raised")
    invocation.output.table(columns, rows, right=columns[3:4])


def _row(regression: RegressionAnswer) -> tuple[str, ...]:
    by = f"{regression.contender} {regression.version}" if regression.contender else units.DASH
    return (
        regression.kernel,
        regression.kind,
        by,
        units.ratio(regression.factor),
        regression.state,
        units.DASH if regression.raised_at is None else units.moment(regression.raised_at),
    )


def _show_races(invocation: Invocation, series: RacesAnswer) -> None:
    if invocation.output.as_json:
        invocation.output.items([race.model_dump(mode="json") for race in series.items])
        return
    if not series.items:
        invocation.output.note(
            f"kernel {series.kernel} was not raced since its promotion; set rerace_days and let "
            f"tuner serve run"
        )
    rows = []
    for race in series.items:
        others = ", ".join(
            f"{contest.contender} {contest.version}: {units.ratio(contest.ratio)}"
            for contest in race.contests
        )
        doubt = "disturbed" if race.disturbed else race.error or ""
        rows.append((units.moment(race.raced_at), units.seconds(race.median_s), others, doubt))
    columns = ("raced", "median", "others/kernel", "")
    invocation.output.table(columns, rows, right=columns[1:2])
