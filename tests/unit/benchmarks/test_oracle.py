"""The workloads that estimates are judged by, and the log of their races."""

from __future__ import annotations

from pathlib import Path

from benchmarks.oracle.log import Raced, append, races
from benchmarks.oracle.report import bounds_kept
from benchmarks.oracle.workloads import LEAST_FLOPS, MOST_FLOPS, OPERATORS, drawn


def test_workloads_are_the_same_for_a_seed_and_all_different() -> None:
    some = drawn(6, seed=1)
    assert [each.key for each in some] == [each.key for each in drawn(6, seed=1)]
    assert len({each.key for each in some}) == 6 * len(OPERATORS)
    # In turn, so that any first part has all operators.
    assert [each.op for each in some[: len(OPERATORS)]] == list(OPERATORS)
    assert all(LEAST_FLOPS <= each.expression.flops <= MOST_FLOPS for each in some)
    extents = [value for each in some for value in each.params.values() if isinstance(value, int)]
    assert any(value % 4 for value in extents if value > 16), "odd extents are among them"


def test_races_of_a_workload_are_one(tmp_path: Path) -> None:
    path = tmp_path / "races.jsonl"
    for seconds in ([1.0, 3.0], [2.0]):
        append(path, Raced(spec="a", rounds_s={"1": seconds}, paces={"1": [None] * len(seconds)}))
    append(path, Raced(spec="a", rounds_s={"4": [0.5]}, paces={"4": [1.0]}))
    (race,) = races(path).values()
    assert race.median_s == {"1": 2.0, "4": 0.5} and race.count == 3
    assert race.ci95_s("1") == (1.0, 3.0)


def test_a_bound_is_of_the_others_and_nine_of_ten_keep_it() -> None:
    losses = [place / 100 for place in range(40)]
    kept = bounds_kept(losses)
    assert sum(kept) == 36 and not any(kept[37:])
