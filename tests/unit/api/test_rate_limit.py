"""Token buckets: bursts pass, then the refill decides; waits are honest; memory is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.api.rate_limit import TokenBuckets, retry_after


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_passes_and_the_next_waits_as_long_as_told() -> None:
    clock = Clock()
    buckets = TokenBuckets(per_s=2.0, burst=3, clock=clock)
    assert [buckets.take("a") for _ in range(3)] == [0, 0, 0]
    wait_s = buckets.take("a")
    assert wait_s == pytest.approx(0.5)
    clock.now += wait_s
    assert buckets.take("a") == 0


def test_names_do_not_share() -> None:
    buckets = TokenBuckets(per_s=1.0, burst=1, clock=Clock())
    assert buckets.take("a") == 0
    assert buckets.take("a") == pytest.approx(1.0)
    assert buckets.take("b") == 0


def test_forgets_the_least_recently_used_name() -> None:
    buckets = TokenBuckets(per_s=0.0, burst=1, clock=Clock(), names=2)
    for name in ("a", "b", "c"):
        assert buckets.take(name) == 0
    assert buckets.take("c") > 0
    assert buckets.take("a") == 0  # forgotten, so full again


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 4)), max_size=60))
def test_never_grants_more_than_burst_plus_refill(steps: list[tuple[float, int]]) -> None:
    clock = Clock()
    buckets = TokenBuckets(per_s=3.0, burst=5, clock=clock)
    granted = 0
    for pause, cost in steps:
        clock.now += pause
        granted += cost if buckets.take("a", cost) == 0 else 0
    assert granted <= 5 + 3.0 * clock.now + 1e-6


@pytest.mark.parametrize(("wait_s", "header"), [(0.01, "1"), (1.2, "2"), (float("inf"), "3600")])
def test_retry_after_is_whole_seconds(wait_s: float, header: str) -> None:
    assert retry_after(wait_s) == header
