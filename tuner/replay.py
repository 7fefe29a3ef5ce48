"""Recorded tables of trials, a measurer that answers from them, and the comparison of
strategies on them over many seeds.

A table is an `.npz` without pickles: `header` (UTF-8 JSON as bytes: schema, workload,
target, default_median_s, sketches with their knobs' names and values, failure kinds,
conditions), `points` (n, knobs) int16, `outcome` (n,) uint8 (0 is ok, k is the k-th
failure kind of the header), `median_s` (number of ok rows,) float64 in the order of the
rows, and, if recorded, `features` (n, F) float32.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.encoding import KnobEncoding
from tuner.cost_model.model import Features, Featurizer
from tuner.errors import UsageError
from tuner.measure.outcome import Candidate, Conditions, Failed, FailureKind, Outcome, Timed, Trial
from tuner.search.domain import Domain
from tuner.search.searcher import Searcher
from tuner.spaces.core.space import Combination, Knob, Points, Space
from tuner.tuning import Budget, TrialRecorded, tune

SCHEMA = 1
_KINDS = tuple(
    kind for kind in FailureKind if kind is not FailureKind.INFRASTRUCTURE
)  # a table has answers, not accidents
_MOST_BYTES = 1 << 28  # of one array; a table of 4,000 points with 200 features takes 3 MB
TARGET_SHARE = 0.005  # "among the fastest 0.5%"


@dataclass(frozen=True, kw_only=True)
class RecordedTable:
    name: str  # for people, e.g. the workload's spec
    workload: Mapping[str, Any]  # its document
    target: str  # name of the machine it was measured on
    space: Space  # the knobs and values that were measured
    points: Points  # (n, knobs), each once
    outcomes: NDArray[
        np.uint8
    ]  # (n,): 0 timed, k the k-th kind of FailureKind (infrastructure never occurs)
    median_s: NDArray[np.float64]  # (timed rows,), in the order of their rows
    default_median_s: float  # of the default schedule
    features: Features | None = None  # (n, F)
    notes: Mapping[str, str] = field(default_factory=dict)  # date, versions, conditions

    def __post_init__(self) -> None:
        count = len(self.points)
        problems = {
            f"points have shape {self.points.shape}, the space has "
            f"{len(self.space.knobs)} knobs": self.points.ndim != 2
            or self.points.shape[1] != len(self.space.knobs),
            f"{len(self.outcomes)} outcomes for {count} points": len(self.outcomes) != count,
            f"outcome codes up to {int(self.outcomes.max(initial=0))}, known are 0 to "
            f"{len(_KINDS)}": bool((self.outcomes > len(_KINDS)).any()),
            f"{len(self.median_s)} times for {int((self.outcomes == 0).sum())} timed rows": len(
                self.median_s
            )
            != int((self.outcomes == 0).sum()),
            "times that are not positive and finite": not bool(
                (np.isfinite(self.median_s) & (self.median_s > 0)).all()
            ),
            f"a default time of {self.default_median_s}": not 0
            < self.default_median_s
            < float("inf"),
            "no timed row": not len(self.median_s),
            f"features for {0 if self.features is None else len(self.features)} of "
            f"{count} points": self.features is not None and len(self.features) != count,
        }
        for problem, wrong in problems.items():
            if wrong:
                raise UsageError(f"table {self.name!r} is damaged: {problem}; record it again")
        inside = (self.points >= 0) & (self.points < self.space.cardinalities)
        if not inside.all() or not np.array_equal(self.points, self.space.canonical(self.points)):
            raise UsageError(
                f"table {self.name!r} is damaged: it has points outside its own space; "
                f"record it again"
            )

    def domain(self) -> Domain:
        """The table's points as what a search may propose: its space where that was
        measured as a whole, else those rows of it."""
        return Domain(self.space, None if len(self.points) == self.space.size else self.points)

    def featurizer(self) -> Featurizer:
        """The recorded features, or an encoding of the knobs where none were recorded."""
        return (
            KnobEncoding(self.space)
            if self.features is None
            else _Lookup(Domain(self.space), self.points, self.features)
        )

    def outcome(self, row: int) -> Outcome:
        code = int(self.outcomes[row])
        if code:
            return Failed(
                kind=_KINDS[code - 1],
                message=f"{_KINDS[code - 1]} when the table {self.name!r} was recorded",
            )
        seconds = float(self.median_s[int(np.count_nonzero(self.outcomes[:row] == 0))])
        return _recorded(self, seconds)

    @property
    def optimum_s(self) -> float:
        return float(self.median_s.min())

    @property
    def good_s(self) -> float:
        """The slowest time that is still among the fastest 0.5% of all rows."""
        return self.among_fastest_s(TARGET_SHARE)

    def among_fastest_s(self, share: float) -> float:
        """The slowest time that is still among the fastest `share` of all rows, 0 <
        share <= 1; at least the best row's."""
        return float(
            np.sort(self.median_s)[min(len(self.median_s), ceil(share * len(self.points))) - 1]
        )


class _Lookup:
    def __init__(self, domain: Domain, points: Points, features: Features) -> None:
        self._domain = domain
        keys = domain.keys(points)
        order = np.argsort(keys, kind="stable")
        self._keys, self._features = keys[order], features[order]

    def __call__(self, points: Points) -> Features:
        return self._features[np.searchsorted(self._keys, self._domain.keys(points))]


def _recorded(table: RecordedTable, seconds: float) -> Timed:
    conditions = Conditions(lane="recorded", isolation="recorded")
    return Timed(
        samples_s=(seconds,), max_rel_error=0.0, conditions=conditions, artifact="recorded"
    )


def outcome_codes(outcomes: Sequence[Outcome]) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Codes and times of a table's rows; refuses infrastructure failures, which are to
    be measured again before recording."""
    codes = np.zeros(len(outcomes), np.uint8)
    times: list[float] = []
    for row, outcome in enumerate(outcomes):
        match outcome:
            case Timed() as timed:
                times.append(timed.median_s)
            case Failed(kind=FailureKind.INFRASTRUCTURE, message=message):
                raise UsageError(
                    f"row {row} was lost to infrastructure ({message}); measure it again before "
                    f"recording the table"
                )
            case Failed(kind=kind):
                codes[row] = _KINDS.index(kind) + 1
    return codes, np.array(times, np.float64)


def write_table(path: Path, table: RecordedTable) -> None:
    header = {
        "schema": SCHEMA,
        "name": table.name,
        "workload": dict(table.workload),
        "target": table.target,
        "default_median_s": table.default_median_s,
        "kinds": [str(kind) for kind in _KINDS],
        "sketches": [
            {
                "name": sketch.name,
                "knobs": [
                    {"name": knob.name, "values": list(knob.values)} for knob in sketch.knobs
                ],
            }
            for sketch in table.space.combinations
        ],
        "notes": dict(table.notes),
    }
    arrays: dict[str, NDArray[Any]] = {
        "header": np.frombuffer(json.dumps(header, sort_keys=True).encode(), np.uint8),
        "points": table.points.astype(np.int16),
        "outcome": table.outcomes.astype(np.uint8),
        "median_s": table.median_s.astype(np.float64),
    }
    if table.features is not None:
        arrays["features"] = table.features.astype(np.float32)
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read_table(path: Path) -> RecordedTable:
    """Raises UsageError for a file that is no table of this schema, or a damaged one."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            arrays = {Path(name).stem: _array(archive, name) for name in archive.namelist()}
        header = json.loads(arrays["header"].tobytes())
        if header["schema"] != SCHEMA:
            raise UsageError(
                f"{path} has table schema {header['schema']}, this version reads {SCHEMA}; "
                f"record it again"
            )
        kinds = [FailureKind(kind) for kind in header["kinds"]]
        translation = np.array([0, *(_KINDS.index(kind) + 1 for kind in kinds)], np.uint8)
        return RecordedTable(
            name=header["name"],
            workload=header["workload"],
            target=header["target"],
            space=_space(header["sketches"]),
            points=arrays["points"].astype(np.int32),
            outcomes=translation[arrays["outcome"]],
            median_s=arrays["median_s"],
            default_median_s=header["default_median_s"],
            features=arrays.get("features"),
            notes=header["notes"],
        )
    except (
        OSError,
        EOFError,
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise UsageError(
            f"{path} is not a recorded table: {error}; `tuner replay` reads the .npz files this "
            f"version writes"
        ) from error


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """One array of the archive, refused above a size no table has, before anything of
    that size is allocated."""
    if archive.getinfo(name).file_size > _MOST_BYTES:
        raise ValueError(
            f"{name} would take {archive.getinfo(name).file_size} bytes, at most "
            f"{_MOST_BYTES} are read"
        )
    with archive.open(name) as member:
        array: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        return array


def _space(sketches: Sequence[Mapping[str, Any]]) -> Space:
    return Space(
        tuple(
            Combination(
                name=sketch["name"],
                knobs=tuple(
                    Knob(
                        name=knob["name"],
                        values=tuple(
                            tuple(v) if isinstance(v, list) else v for v in knob["values"]
                        ),
                    )
                    for knob in sketch["knobs"]
                ),
            )
            for sketch in sketches
        )
    )


class ReplayMeasurer:
    """A `Measurer` that answers from a table, at once and in the order submitted. Its
    times were measured another day: `recorded` is true, and each outcome's lane and
    artifact say "recorded", so that none can pass for a measurement or be promoted."""

    recorded: Literal[True] = True

    def __init__(self, table: RecordedTable, *, capacity: int = 2) -> None:
        self._table, self._capacity = table, capacity
        self._domain = Domain(table.space)
        self._rows = {key: row for row, key in enumerate(self._domain.keys(table.points).tolist())}
        self._waiting: list[Candidate] = []

    @property
    def capacity(self) -> int:
        return self._capacity

    def submit(self, candidates: Sequence[Candidate]) -> None:
        self._waiting += candidates

    def results(self, *, timeout_s: float) -> Iterator[Trial]:
        while self._waiting:
            candidate = self._waiting.pop(0)
            yield Trial(
                number=candidate.number, config=candidate.config, outcome=self._answer(candidate)
            )

    def close(self) -> None:
        self._waiting.clear()

    def _answer(self, candidate: Candidate) -> Outcome:
        if not candidate.config:
            return _recorded(self._table, self._table.default_median_s)
        key = int(self._domain.keys(self._table.space.point(candidate.config)[None, :])[0])
        if key not in self._rows:
            raise UsageError(
                f"table {self._table.name!r} has no config {dict(candidate.config)}; search its "
                f"own domain only"
            )
        return self._table.outcome(self._rows[key])


SearcherFactory = Callable[
    [RecordedTable, int], Searcher
]  # (table, seed): a new searcher over the table's domain


@dataclass(frozen=True, slots=True, kw_only=True)
class Quartiles:
    """Of a number over seeds; None where it lies beyond the budget, because so many
    seeds did not get there."""

    lower: float | None
    median: float | None
    upper: float | None

    def __str__(self) -> str:
        return "/".join(
            "—" if value is None else f"{value:g}"
            for value in (self.lower, self.median, self.upper)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One strategy on one table, over all seeds."""

    table: str
    strategy: str
    reached: tuple[
        int | None, ...
    ]  # for each seed, trials until a config among the fastest; None if not within the budget
    trials_needed: Quartiles
    regret: tuple[
        Quartiles, ...
        # after 1, 2, … trials: best time so far over the table's best, minus 1; None before
        # the first timed
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    budget: int  # searching trials of each run; the default schedule is not counted
    seeds: tuple[int, ...]
    share: float  # of a table's rows that count as the fastest
    entries: tuple[Entry, ...]  # table by table, strategies in the order given

    def entry(self, table: str, strategy: str) -> Entry:
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
    """Runs each strategy on each table with each seed through the tuning loop itself,
    `budget` trials long."""
    entries = []
    for table in tables:
        for name, factory in strategies.items():
            runs = []
            for seed in seeds:
                progress(table.name, name, seed)
                runs.append(
                    best_so_far(table, factory(table, seed), min(budget, len(table.points)))
                )
            entries.append(_entry(table, name, runs, share))
    return Comparison(budget=budget, seeds=tuple(seeds), share=share, entries=tuple(entries))


def best_so_far(table: RecordedTable, searcher: Searcher, budget: int) -> list[float | None]:
    """The best time after each searching trial of one run; None before the first that was timed."""
    events = tune(
        space=table.space,
        searcher=searcher,
        measurer=ReplayMeasurer(table),
        budget=Budget(trials=budget + 1),
        clock=lambda: 0.0,
    )
    curve: list[float | None] = []
    best: float | None = None
    for event in events:
        if isinstance(event, TrialRecorded) and event.trial.config:
            if isinstance(event.trial.outcome, Timed):
                seconds = event.trial.outcome.median_s
                best = seconds if best is None else min(best, seconds)
            curve.append(best)
    return curve


def _entry(
    table: RecordedTable, strategy: str, runs: Sequence[Sequence[float | None]], share: float
) -> Entry:
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
        _quartiles(
            [
                None
                if (best := run[min(trials, len(run) - 1)]) is None
                else best / table.optimum_s - 1.0
                for run in runs
            ]
        )
        for trials in range(length)
    )
    return Entry(
        table=table.name,
        strategy=strategy,
        reached=reached,
        trials_needed=_quartiles(reached),
        regret=regret,
    )


def _quartiles(values: Sequence[float | None]) -> Quartiles:
    """Nearest-rank quartiles (rank ⌈q·n⌉) with missing values as the largest."""
    ordered = sorted(value for value in values if value is not None)

    def quantile(share: float) -> float | None:
        rank = max(1, ceil(share * len(values)))
        return ordered[rank - 1] if rank <= len(ordered) else None

    return Quartiles(lower=quantile(0.25), median=quantile(0.5), upper=quantile(0.75))
