"""Search quality on recorded tables of real trials: a search that gets worse fails
here, without a clock."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tuner.app.replay.strategies import factories
from tuner.app.replay.tables import LOOP_NEST, features_of, open_tables
from tuner.replay.comparison import Comparison, compare
from tuner.replay.table import RecordedTable

pytestmark = pytest.mark.slow

TABLES = Path(__file__).parents[2] / "tables" / "large"
NAMES = (
    "matmul_M_256",
    "conv2d_N_1_H_28_W_28_CI_32",
    "depthwise_conv2d",
    "transpose",
    "matmul_M_16",
)
# Of a table all tests run in one process: they share its comparisons.
TOGETHER = [
    pytest.param(table, id=name, marks=pytest.mark.xdist_group(f"recorded {name}"))
    for table, name in enumerate(NAMES)
]
SEEDS, BUDGET = 5, 80
CHEAP_SEEDS = 99  # of random, whose quartiles spread widely and whose runs cost next to nothing


@cache
def tables() -> tuple[RecordedTable, ...]:
    return tuple(open_tables([next(TABLES.glob(f"{name}*.npz")) for name in NAMES]))


@cache
def compared(table: int, strategy: str = "annealing") -> Comparison:
    return compare(
        [tables()[table]], factories((strategy,), tables()), seeds=range(SEEDS), budget=BUDGET
    )


@cache
def luck(table: int) -> float:
    """Random's median number of trials."""
    comparison = compare(
        [tables()[table]],
        factories(("random",), tables()),
        seeds=range(CHEAP_SEEDS),
        budget=3 * BUDGET,
    )
    median = comparison.entry(tables()[table].name, "random").trials_needed.median
    assert median is not None
    return median


@pytest.mark.parametrize("strategy", ["annealing", "transfer"])
@pytest.mark.parametrize("table", TOGETHER)
def test_the_fastest_are_reached_in_a_quarter_of_randoms_trials(table: int, strategy: str) -> None:
    needed = compared(table, strategy).entry(tables()[table].name, strategy).trials_needed.median
    assert needed is not None and needed <= luck(table) / 4, f"{needed}, random {luck(table)}"


@pytest.mark.parametrize("table", TOGETHER[:3])
def test_what_is_missed_after_64_trials_is_within_three_percent(table: int) -> None:
    regret = compared(table).entry(tables()[table].name, "annealing").regret[63]
    assert regret.median is not None and regret.median <= 0.03


@pytest.mark.parametrize("table", (TOGETHER[0], TOGETHER[2]))
def test_the_estimate_leads_near_the_fastest_at_once(table: int) -> None:
    regret = compared(table).entry(tables()[table].name, "annealing").regret[7]
    assert regret.median is not None and regret.median <= 0.06


def test_the_same_seeds_give_the_same_comparison() -> None:
    chosen = factories(("annealing", "evolutionary", "random", "grid"), tables())
    first, second = (compare(tables()[:1], chosen, seeds=(0, 1), budget=40) for _ in range(2))
    assert first == second


def test_the_tables_still_belong_to_their_spaces() -> None:
    """A space that lost a knob or a value makes its tables rank by knobs alone: record
    them again (`make tables`)."""
    assert {features_of(table) for table in tables()} == {LOOP_NEST}
