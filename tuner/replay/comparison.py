"""Strategies compared on recorded tables, over many seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from tuner.errors import UsageError
from tuner.measure.outcome import Timed
from tuner.replay.measurer import ReplayMeasurer
from tuner.replay.table import TARGET_SHARE, RecordedTable
from tuner.search.searcher import Searcher
from tuner.tuning import Budget, TrialRecorded, tune

# (table, seed): a new searcher over the table's domain
SearcherFactory = Callable[[RecordedTable, int], Searcher]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quartiles:
    """Quartiles over seeds. None lies beyond the budget: too few seeds got there."""

    lower: float | None
    median: float | None
    upper: float | None

    def __str__(self) -> str:
        return "/".join(
            "—" if value is None else f"{value:g}"
            for value in (self.lower, self.median, self.upper)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonEntry:
    """One strategy on one table, over all seeds."""

    table: str
    strategy: str
    # For each seed, trials until a config among the fastest; None if not within the budget.
    reached: tuple[int | None, ...]
    trials_needed: Quartiles
    # After 1, 2, … trials: best time so far over the table's best, minus 1; None before
    # the first that was timed.
    regret: tuple[Quartiles, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All strategies on all tables."""

    budget: int  # searching trials of each run; the default schedule is not counted
    seeds: tuple[int, ...]
    share: float  # of a table's rows that count as the fastest
    entries: tuple[ComparisonEntry, ...]  # table by table, strategies in the order given

    def entry(self, table: str, strategy: str) -> ComparisonEntry:
        """The entry of a strategy on a table. Raises UsageError if there is none."""
        for entry in self.entries:
            if (entry.table, entry.strategy) == (table, strategy):
                return entry
        raise UsageError(f"the comparison has no strategy {strategy!r} on table {table!r}")


def compare(
    tables: Sequence[RecordedTable],
    strategies: Mapping[str, SearcherFactory],
    *,
    seeds: Sequence[int],
    budget: int,
    share: float = TARGET_SHARE,
    progress: Callable[[str, str, int], None] = lambda table, strategy, seed: None,
) -> Comparison:
    """Runs each strategy on each table with each seed, through the tuning loop itself.

    A run has `budget` trials, or as many as the table has points.
    """
    entries = []
    for table in tables:
        for name, factory in strategies.items():
            runs = []
            for seed in seeds:
                progress(table.name, name, seed)
                searcher, trials = factory(table, seed), min(budget, len(table.points))
                runs.append(list(best_so_far(table, searcher, trials)))
            entries.append(_entry(table, name, runs, share))
    return Comparison(budget=budget, seeds=tuple(seeds), share=share, entries=tuple(entries))


def best_so_far(table: RecordedTable, searcher: Searcher, budget: int) -> Iterator[float | None]:
    """Seconds of the best trial after each trial of one run; None before the first time.

    The search goes on as far as the caller reads.
    """
    events = tune(
        space=table.space,
        searcher=searcher,
        measurer=ReplayMeasurer(table),
        budget=Budget(trials=budget + 1),
        clock=lambda: 0.0,
    )
    best: float | None = None
    for event in events:
        if isinstance(event, TrialRecorded) and event.trial.config:
            if isinstance(event.trial.outcome, Timed):
                seconds = event.trial.outcome.median_s
                best = seconds if best is None else min(best, seconds)
            yield best


def _entry(
    table: RecordedTable, strategy: str, runs: Sequence[Sequence[float | None]], share: float
) -> ComparisonEntry:
    """The entry of one strategy, from the curves of best times of its runs."""
    good_s = table.among_fastest_s(share)
    reached = tuple(
        next(
            (trials for trials, best in enumerate(run, 1) if best is not None and best <= good_s),
            None,
        )
        for run in runs
    )
    length = max(len(run) for run in runs)
    regret = tuple(
        _quartiles([_regret(run, trials, table.optimum_s) for run in runs])
        for trials in range(1, length + 1)
    )
    return ComparisonEntry(
        table=table.name,
        strategy=strategy,
        reached=reached,
        trials_needed=_quartiles(reached),
        regret=regret,
    )


def _regret(run: Sequence[float | None], trials: int, optimum_s: float) -> float | None:
    """The regret after so many trials; a run that ended earlier stays where it ended."""
    best_s = run[min(trials, len(run)) - 1]
    return None if best_s is None else best_s / optimum_s - 1.0


def _quartiles(values: Sequence[float | None]) -> Quartiles:
    """Nearest-rank quartiles (rank ⌈q·n⌉), with missing values as the largest."""
    ordered = sorted(value for value in values if value is not None)

    def quantile(share: float) -> float | None:
        rank = max(1, ceil(share * len(values)))
        return ordered[rank - 1] if rank <= len(ordered) else None

    return Quartiles(lower=quantile(0.25), median=quantile(0.5), upper=quantile(0.75))
