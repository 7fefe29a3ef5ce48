"""Recorded tables: written and read back, damaged ones refused, answers marked,
strategies compared over seeds."""

from __future__ import annotations

import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.synthetic_spaces import Response, large_space
from tuner.cost_model.ranker import Ranker
from tuner.errors import UsageError
from tuner.measure.outcome import Candidate, Failed, FailureKind, Timed
from tuner.replay.comparison import Quartiles, SearcherFactory, best_so_far, compare
from tuner.replay.measurer import ReplayMeasurer
from tuner.replay.table import RecordedTable, outcome_codes, read_table, write_table
from tuner.search.searcher import Searcher
from tuner.search.setup import GuidedOptions, SearchSetup
from tuner.search.strategies import build_searcher
from tuner.spaces.core.space import Combination, Knob, Space


def sublattice() -> Space:
    """Every other value of the large space's first sketch, and its second sketch: 1,920
    + 120 points."""
    tiled, plain = large_space().combinations
    keep = {"tiled.i": 3, "tiled.j": 3, "tiled.k": 3, "tiled.unroll": 2}
    thinned = Combination(
        name="tiled",
        knobs=tuple(
            Knob(name=knob.name, values=knob.values[:: keep.get(knob.name, 1)])
            for knob in tiled.knobs
        ),
    )
    halved = Combination(
        name="plain",
        knobs=tuple(Knob(name=knob.name, values=knob.values[::2]) for knob in plain.knobs),
    )
    return Space((thinned, halved))


@cache
def table(rows: int | None = None, *, features: bool = False) -> RecordedTable:
    space = sublattice()
    points = np.stack([point.copy() for point in space])
    if rows is not None:
        points = points[np.random.default_rng(0).permutation(len(points))[:rows]]
    response = Response(space=space, registers=96)
    codes, times = outcome_codes([response.outcome(point) for point in points])
    return RecordedTable(
        name="synthetic",
        workload={"op": "matmul", "params": {"M": 64}},
        target="test machine",
        space=space,
        points=points,
        outcomes=codes,
        median_s=times,
        default_median_s=20e-3,
        features=np.random.default_rng(1).random((len(points), 7)).astype(np.float32)
        if features
        else None,
        notes={"date": "2026-11-20"},
    )


def strategy(name: str) -> SearcherFactory:
    """Explorers at work instead of scoring the whole table, as they would in a space
    too large to list."""

    def build(table: RecordedTable, seed: int) -> Searcher:
        setup = SearchSetup(
            domain=table.domain(),
            featurizer=table.featurizer(),
            model=Ranker(),
            seed=seed,
            options=GuidedOptions(listed=0),
        )
        return build_searcher(name, setup)

    return build


@pytest.mark.parametrize("features", [True, False])
def test_a_table_survives_its_file(tmp_path: Path, features: bool) -> None:
    written = table(300, features=features)
    write_table(tmp_path / "t.npz", written)
    read = read_table(tmp_path / "t.npz")
    assert (read.name, read.workload, read.target, read.notes) == (
        written.name,
        written.workload,
        written.target,
        written.notes,
    )
    assert read.space == written.space and read.default_median_s == written.default_median_s
    assert np.array_equal(read.points, written.points) and read.points.dtype == np.int32
    assert np.array_equal(read.outcomes, written.outcomes) and np.array_equal(
        read.median_s, written.median_s
    )
    assert (read.features is None) == (written.features is None)
    if read.features is not None and written.features is not None:
        assert np.array_equal(read.features, written.features)


def test_the_same_table_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        write_table(tmp_path / name, table(300))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def encrypted(archive: bytes) -> bytes:
    """The archive with the flag of encryption in all its headers."""
    marked = bytearray(archive)
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = marked.find(signature)
        while start >= 0:
            marked[start + place] |= 1
            start = marked.find(signature, start + 4)
    return bytes(marked)


def test_files_that_are_no_tables_are_refused_by_name(tmp_path: Path) -> None:
    write_table(tmp_path / "t.npz", table(300))
    whole = (tmp_path / "t.npz").read_bytes()
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    (tmp_path / "text.npz").write_text("not an archive")
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.npz").write_bytes(b"")
    np.savez(tmp_path / "deep.npz", header=np.frombuffer(b"[" * 100_000, np.uint8))
    np.savez(tmp_path / "list.npz", header=np.frombuffer(b"[1]", np.uint8))
    (tmp_path / "locked.npz").write_bytes(encrypted(whole))
    with zipfile.ZipFile(tmp_path / "vast.npz", "w") as archive:
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000000,)}"
        prefix = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
        archive.writestr("points.npy", prefix + header)
    names = ("other", "text", "cut", "empty", "missing", "deep", "list", "locked", "vast")
    for name in (f"{name}.npz" for name in names):
        with pytest.raises(UsageError, match=rf"{name} is not a recorded table"):
            read_table(tmp_path / name)


def test_damaged_contents_are_refused() -> None:
    good = table(300)
    fields = {name: getattr(good, name) for name in RecordedTable.__dataclass_fields__}
    outside = good.points.copy()
    outside[0, 1] = 99
    changes: list[tuple[dict[str, Any], str]] = [
        ({"outcomes": good.outcomes[:-1]}, "299 outcomes for 300 points"),
        ({"median_s": good.median_s[:-1]}, "times for"),
        ({"median_s": np.full_like(good.median_s, np.nan)}, "not positive and finite"),
        ({"outcomes": np.full_like(good.outcomes, 77)}, "outcome codes up to 77"),
        ({"points": outside}, "outside its own space"),
        ({"default_median_s": 0.0}, "default time"),
        ({"points": good.points[:, :-1]}, "knobs"),
    ]
    for change, reason in changes:
        with pytest.raises(UsageError, match=reason):
            RecordedTable(**{**fields, **change})


def test_infrastructure_failures_cannot_be_recorded() -> None:
    with pytest.raises(UsageError, match="row 0 was lost to infrastructure"):
        outcome_codes([Failed(kind=FailureKind.INFRASTRUCTURE, message="gone")])


def test_answers_are_the_tables_and_marked_as_recorded() -> None:
    recorded = table()
    measurer = ReplayMeasurer(recorded)
    assert measurer.recorded
    timed = iter(recorded.median_s.tolist())
    rows = range(0, len(recorded.points))
    measurer.submit(
        [
            Candidate(number=1 + row, config=recorded.space.config(recorded.points[row]))
            for row in rows
        ]
    )
    for row, trial in zip(rows, measurer.results(timeout_s=0.0), strict=True):
        assert trial.number == 1 + row
        if recorded.outcomes[row] == 0:
            assert isinstance(trial.outcome, Timed) and trial.outcome.median_s == next(timed)
            assert (trial.outcome.artifact, trial.outcome.conditions.lane) == (
                "recorded",
                "recorded",
            )
        else:
            assert (
                isinstance(trial.outcome, Failed) and trial.outcome.kind is FailureKind.BUILD_ERROR
            )
    assert next(timed, None) is None


def test_a_config_the_table_lacks_is_refused() -> None:
    part = table(300)
    missing = next(point for point in part.space if not (part.points == point).all(axis=1).any())
    measurer = ReplayMeasurer(part)
    measurer.submit([Candidate(number=1, config=part.space.config(missing))])
    with pytest.raises(UsageError, match="has no config"):
        list(measurer.results(timeout_s=0.0))


def test_recorded_features_are_looked_up_by_point() -> None:
    part = table(300, features=True)
    assert part.features is not None
    order = np.random.default_rng(3).permutation(300)
    assert np.array_equal(part.featurizer()(part.points[order]), part.features[order])


@pytest.mark.parametrize("name", ["annealing", "evolutionary", "random", "grid"])
def test_a_partial_table_is_searched_to_its_end_within_its_rows(name: str) -> None:
    part = table(150)
    curve = list(best_so_far(part, strategy(name)(part, 0), 10_000))
    assert len(curve) == 150 and curve[-1] == part.optimum_s


def test_random_needs_the_number_of_trials_that_probability_says() -> None:
    """Of N rows, k good ones: the median first hit of draws without replacement is near
    (1 - 2^(-1/k))·N."""
    whole = table()
    good = int(np.sum(whole.median_s <= whole.good_s))
    expected = (1 - 2 ** (-1 / good)) * len(whole.points)
    needed = (
        compare([whole], {"random": strategy("random")}, seeds=range(40), budget=500)
        .entries[0]
        .trials_needed
    )
    assert needed.median is not None and 0.6 * expected < needed.median < 1.6 * expected


def test_annealing_needs_at_most_half_of_randoms_trials() -> None:
    seeds = range(11)
    annealing = compare(
        [table()], {"annealing": strategy("annealing")}, seeds=seeds, budget=100
    ).entry("synthetic", "annealing")
    random = compare([table()], {"random": strategy("random")}, seeds=seeds, budget=300).entry(
        "synthetic", "random"
    )
    assert annealing.trials_needed.median is not None
    assert annealing.trials_needed.median <= 0.5 * (random.trials_needed.median or 300)
    last = annealing.regret[-1]
    assert last.median is not None and last.median < 0.05
    medians = [quartiles.median for quartiles in annealing.regret if quartiles.median is not None]
    assert medians == sorted(medians, reverse=True)


def test_quartiles_beyond_the_budget_are_missing_not_numbers() -> None:
    entry = compare([table()], {"random": strategy("random")}, seeds=range(4), budget=1).entries[0]
    assert entry.reached == (None,) * 4, "no seed's first config is among the fastest"
    assert entry.trials_needed.upper is None
    assert str(Quartiles(lower=3, median=4.5, upper=None)) == "3/4.5/—"
