"""What the history of one machine saves a search on another.

    python -m benchmarks.search.machines TABLE TABLE ...

The tables are of the same workloads on two targets or more. Each is searched by annealing
without a history, and with the tables of another target as its history, as a job is whose
target has none of its own. Prints for each the trials until a config is within 5% of the
table's best: the median of the seeds with its quartiles.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from tuner.app.replay.strategies import factories, warmed_by
from tuner.app.replay.tables import with_features
from tuner.errors import UsageError
from tuner.replay.comparison import SearcherFactory, best_so_far
from tuner.replay.table import RecordedTable, read_table
from tuner.search.strategies import DEFAULT_STRATEGY

SEEDS = 30
WITHIN = 1.05  # times the table's best


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Trials that each seed needed on one table."""

    table: RecordedTable
    history: str  # the target it is of
    without: Sequence[int]
    warmed: Sequence[int]


def transfers(tables: Sequence[RecordedTable], seeds: int) -> Iterator[Transfer]:
    """Of each table with the history of each other target.

    Raises UsageError for tables of one target.
    """
    targets = list(dict.fromkeys(table.target for table in tables))
    if len(targets) < 2:
        raise UsageError(f"all tables are of {', '.join(targets)}; give those of two targets")
    for table in tables:
        cold = factories([DEFAULT_STRATEGY], [table])[DEFAULT_STRATEGY]
        without = trials_needed(table, cold, seeds)
        for other in targets:
            if other != table.target:
                history = [past for past in tables if past.target == other]
                warm = warmed_by(history, table.workload.get("op"))
                yield Transfer(
                    table=table,
                    history=other,
                    without=without,
                    warmed=trials_needed(table, warm, seeds),
                )


def trials_needed(table: RecordedTable, factory: SearcherFactory, seeds: int) -> list[int]:
    """Of each seed, the trials until the best so far is near the table's best."""
    near_s = WITHIN * table.optimum_s
    needed = []
    for seed in range(seeds):
        best = enumerate(best_so_far(table, factory(table, seed), len(table.points)), 1)
        needed.append(next(trials for trials, s in best if s is not None and s <= near_s))
    return needed


def text_of(needed: Sequence[int]) -> str:
    """The median with the quartiles."""
    lower, median, upper = quantiles(needed, n=4, method="inclusive")
    return f"{median:g} ({lower:g} to {upper:g})"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="+", type=Path, metavar="TABLE")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args(arguments)
    tables = [with_features(read_table(path)) for path in given.tables]
    for transfer in transfers(tables, given.seeds):
        print(
            f"{transfer.table.name} on {transfer.table.target}: {text_of(transfer.without)} trials "
            f"without a history, {text_of(transfer.warmed)} with that of {transfer.history}",
            flush=True,
        )


if __name__ == "__main__":
    main()
