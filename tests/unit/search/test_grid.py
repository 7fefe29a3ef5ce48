"""Grid search spreads: any first part of the walk covers the space evenly."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.synthetic_spaces import large_space, small_space
from tuner.search.domain import Domain
from tuner.search.grid import grid_sequence
from tuner.search.random import SequenceSearcher


@pytest.mark.parametrize("trials", [20, 100, 700])
def test_the_largest_gap_is_near_the_even_one(trials: int) -> None:
    domain = Domain(large_space())
    ranks = np.sort(
        domain.keys(SequenceSearcher(domain, grid_sequence(domain, 4)).ask(trials)).astype(np.int64)
    )
    gaps = np.diff(ranks, append=ranks[0] + domain.size)
    assert gaps.max() < 3 * domain.size / trials


def test_every_point_comes_once() -> None:
    domain = Domain(small_space())
    points = SequenceSearcher(domain, grid_sequence(domain, 0)).ask(1000)
    assert sorted(domain.keys(points).tolist()) == list(range(domain.size))
