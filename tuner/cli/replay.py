"""`tuner replay`: strategies compared on recorded tables, over many seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli.invocation import Invocation
from tuner.cli.output_file import check_output, write_output
from tuner.errors import UsageError
from tuner.search.strategies import STRATEGIES

if TYPE_CHECKING:
    from tuner.replay.comparison import Comparison, ComparisonEntry, Quartiles
    from tuner.replay.table import RecordedTable

# The top of a plot: twice the best time. Higher regret says nothing of how a search ends.
HIGHEST_REGRET = 1.0


def replay(
    context: typer.Context,
    tables: Annotated[
        list[Path], typer.Argument(metavar="TABLE...", help="recorded tables, .npz, or T4 .json")
    ],
    strategies: Annotated[
        str,
        typer.Option(
            "--strategies",
            metavar="NAME,...",
            help=f"{', '.join(STRATEGIES)}, transfer, tpe",
        ),
    ] = "annealing,evolutionary,random",
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds", metavar="N", min=1, max=1000, help="runs of each strategy on each table"
        ),
    ] = 30,
    budget: Annotated[
        int,
        typer.Option("--budget", metavar="N", min=1, max=100_000, help="trials of a run, at most"),
    ] = 256,
    top: Annotated[
        float,
        typer.Option(
            "--top",
            metavar="PCT",
            min=0.01,
            max=50.0,
            help="a run is done once it has one of the fastest PCT percent",
        ),
    ] = 0.5,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.svg", help="writes the curves of regret as SVG"),
    ] = None,
) -> None:
    """Compares strategies on recorded trials: how many trials each needs to reach the
    fastest, and what it misses."""
    from tuner.app.replay.strategies import factories
    from tuner.app.replay.tables import open_tables
    from tuner.replay.comparison import compare

    if plot is not None and plot.suffix != ".svg":
        raise UsageError(
            f"a plot is written as SVG, {plot.name!r} is none; give a name that ends in .svg"
        )
    if plot is not None:
        check_output(plot)
    output = Invocation.here(context).output
    opened = open_tables(tables)
    chosen = factories([name.strip() for name in strategies.split(",") if name.strip()], opened)
    if not chosen:
        raise UsageError(
            "no strategy was named; give at least one, as --strategies annealing,random"
        )

    def progress(table: str, strategy: str, seed: int) -> None:
        if seed == 0:
            output.note(f"{table}: {strategy}, {seeds} seeds")

    comparison = compare(
        opened, chosen, seeds=range(seeds), budget=budget, share=top / 100, progress=progress
    )
    if plot is not None:
        write_output(plot, _plot(comparison).encode())
        output.note(f"{plot} written")
    if output.as_json:
        output.document(_document(comparison, opened))
        return
    rows = [_row(entry) for entry in comparison.entries]
    numbers = ("lower", "median", "upper", "regret at 32", "at 128", "at the end")
    output.table(("table", "strategy", *numbers), rows, right=numbers)
    output.line(
        f"trials to the fastest {top:g}% and median regret, over {seeds} seeds; — is beyond "
        f"{budget} trials"
    )


def _row(entry: ComparisonEntry) -> tuple[str, ...]:
    needed = entry.trials_needed
    return (
        entry.table,
        entry.strategy,
        *(
            "—" if value is None else f"{value:g}"
            for value in (needed.lower, needed.median, needed.upper)
        ),
        *(_percent(entry, trials) for trials in (32, 128, len(entry.regret))),
    )


def _percent(entry: ComparisonEntry, trials: int) -> str:
    median = entry.regret[min(trials, len(entry.regret)) - 1].median
    return "—" if median is None else f"{median:.1%}"


def _document(comparison: Comparison, tables: list[RecordedTable]) -> dict[str, Any]:
    from tuner.app.replay.tables import features_of

    return {
        "budget": comparison.budget,
        "seeds": len(comparison.seeds),
        "top": comparison.share,
        "tables": [
            {
                "name": table.name,
                "target": table.target,
                "configs": len(table.points),
                "timed": len(table.median_s),
                "best_s": table.optimum_s,
                "default_s": table.default_median_s,
                "features": features_of(table),
                "notes": dict(table.notes),
            }
            for table in tables
        ],
        "results": [
            {
                "table": entry.table,
                "strategy": entry.strategy,
                "trials_needed": _quartiles(entry.trials_needed),
                "reached": list(entry.reached),
                "regret": [_quartiles(quartiles) for quartiles in entry.regret],
            }
            for entry in comparison.entries
        ],
    }


def _quartiles(quartiles: Quartiles) -> dict[str, float | None]:
    return {"lower": quartiles.lower, "median": quartiles.median, "upper": quartiles.upper}


def _plot(comparison: Comparison) -> str:
    from tuner.cli.svg import Curve, curves, document

    charts = []
    for table in dict.fromkeys(entry.table for entry in comparison.entries):
        lines = {
            entry.strategy: Curve(
                middle=[quartiles.median for quartiles in entry.regret],
                lower=[quartiles.lower for quartiles in entry.regret],
                upper=[quartiles.upper for quartiles in entry.regret],
            )
            for entry in comparison.entries
            if entry.table == table
        }
        charts.append(
            curves(
                table, lines, x="trials", y="regret (best so far / best - 1)", top=HIGHEST_REGRET
            )
        )
    return document(charts)
