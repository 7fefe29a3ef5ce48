"""The plan of a portfolio is a shortest path, and the kernels chosen for it are few and good."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.export.portfolio import choose_extents, plan_rows, worst_regret, worthwhile

COSTS = st.dictionaries(st.integers(1, 40), st.floats(1e-6, 1.0), min_size=1, max_size=6)


def copying(rows: int) -> float:
    return 1e-3 * rows


@given(COSTS, st.integers(1, 60))
def test_the_plan_is_the_best_there_is(kernels: dict[int, float], high: int) -> None:
    @cache
    def best(left: int) -> float:
        if left == 0:
            return 0.0
        return min(
            cost + (best(left - rows) if rows <= left else copying(left))
            for rows, cost in kernels.items()
        )

    plan, extents = plan_rows(list(kernels.items()), high, copying), list(kernels)
    assert len(plan.first) == len(plan.seconds) == high + 1
    for rows in range(1, high + 1):
        assert plan.seconds[rows] == pytest.approx(best(rows))
        left, calls = rows, 0
        while left > 0:
            left, calls = left - extents[plan.first[left]], calls + 1
        assert calls <= rows


def test_a_plan_needs_kernels() -> None:
    for kernels in ([], [(0, 1.0)]):
        with pytest.raises(ValueError, match="at least one row"):
            plan_rows(kernels, 4, copying)


def ideal(rows: int) -> float:
    """100 us for what all rows share, 1 us for a row."""
    return 1e-4 + 1e-6 * rows


def little(rows: int) -> float:
    return 1e-7 * rows


@pytest.mark.parametrize(
    ("low", "high"), [(1, 512), (1, 2), (100, 200), (7, 9), (1, 4096), (5000, 60000)]
)
def test_few_kernels_serve_a_range(low: int, high: int) -> None:
    extents = choose_extents(low, high, ideal, little)
    assert (
        len(extents) <= 8 and extents[-1] == high and all(low <= rows <= high for rows in extents)
    )
    worst, mean = worst_regret({rows: ideal(rows) for rows in extents}, low, high, ideal, little)
    assert worst < 0.7 and mean < 0.2


def test_more_kernels_are_never_worse() -> None:
    def regret(most: int) -> float:
        extents = choose_extents(1, 300, ideal, little, most)
        return sum(worst_regret({rows: ideal(rows) for rows in extents}, 1, 300, ideal, little))

    regrets = [regret(most) for most in range(1, 7)]
    assert regrets == sorted(regrets, reverse=True)


def test_kernels_nobody_needs_are_left_out() -> None:
    kernels = {rows: ideal(rows) for rows in range(1, 65)}
    kept = worthwhile(kernels, 1, 64, little)
    assert len(kept) <= 8 and kept[-1] == 64
    slow = {8: 1e-3, 16: 1e-5, 64: 2e-5}
    assert worthwhile(slow, 1, 64, little) == (16, 64)


def test_kernels_go_where_the_traffic_is() -> None:
    """Nearly all calls have 100 or 101 rows: both get kernels of their own, and every
    other number of rows is still served."""
    traffic = {100: 50.0, 101: 40.0, 3: 1.0}
    extents = choose_extents(1, 512, ideal, little, 4, traffic)
    assert {100, 101} <= set(extents) and extents[-1] == 512
    alike = choose_extents(1, 512, ideal, little, 4)
    regret, other = (
        worst_regret({rows: ideal(rows) for rows in chosen}, 1, 512, ideal, little, traffic)[1]
        for chosen in (extents, alike)
    )
    assert regret < other and regret == pytest.approx(0.0, abs=1e-2)


def test_of_too_many_kernels_those_of_the_traffic_are_kept() -> None:
    kernels = {rows: ideal(rows) for rows in (1, 2, 4, 8, 16, 32, 64, 100, 128, 256, 512)}
    assert 100 in worthwhile(kernels, 1, 512, little, 3, {100: 9.0, 512: 1.0})
    assert 100 not in worthwhile(kernels, 1, 512, little, 3)


def test_traffic_over_a_long_range_is_judged_in_steps() -> None:
    traffic = {30000: 1.0, 29999: 1.0}
    extents = choose_extents(1, 60000, ideal, little, 4, traffic)
    assert extents[-1] == 60000
    assert (
        worst_regret({rows: ideal(rows) for rows in extents}, 1, 60000, ideal, little, traffic)[0]
        < 0.05
    )
