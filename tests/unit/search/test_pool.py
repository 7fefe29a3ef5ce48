"""The pool keeps the best distinct untried points, whatever the order they come in."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.synthetic_spaces import small_space
from tuner.search.domain import Domain, is_in
from tuner.search.pool import ALIKE, Pool

DOMAIN = Domain(small_space())


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(0, 40))
def test_it_agrees_with_sorting_everything(seed: int, capacity: int, tried_count: int) -> None:
    rng = np.random.default_rng(seed)
    points = DOMAIN.points()
    score_of = rng.permutation(len(points)).astype(np.float32)
    tried = np.sort(rng.permutation(len(points))[:tried_count]).astype(np.uint64)
    pool = Pool(DOMAIN, capacity=capacity, tried=tried)
    offered: set[int] = set()
    for _ in range(12):
        rows = rng.integers(len(points), size=15)
        offered |= set(rows.tolist())
        pool.add(points[rows], score_of[rows])
    best, scores = pool.best()
    expected = sorted(offered - set(tried.tolist()), key=lambda row: -score_of[row])[:capacity]
    assert DOMAIN.keys(best).tolist() == expected
    assert scores.tolist() == [float(score_of[row]) for row in expected]
    assert pool.seen == 12 * 15


def test_an_empty_pool_gives_no_points() -> None:
    points, scores = Pool(DOMAIN, capacity=4, tried=np.zeros(0, np.uint64)).best()
    assert points.shape == (0, len(DOMAIN.space.knobs)) and scores.shape == (0,)


@given(st.integers(0, 2**32 - 1), st.integers(1, 30))
def test_it_keeps_few_points_of_one_score(seed: int, capacity: int) -> None:
    """Twins have one score; of one that a tried point has a single other is kept."""
    rng = np.random.default_rng(seed)
    points = DOMAIN.points()
    score_of = rng.integers(0, 6, len(points)).astype(np.float32)
    known_scores = np.array([2.0, 4.0], np.float32)
    pool = Pool(DOMAIN, capacity=capacity, tried=np.zeros(0, np.uint64), measured=known_scores)
    for rows in np.array_split(rng.permutation(len(points)), 7):
        pool.add(points[rows], score_of[rows])
    _, scores = pool.best()
    counts = {
        score: min(int((score_of == score).sum()), 1 if score in known_scores else ALIKE)
        for score in sorted(set(score_of.tolist()))
    }
    assert (
        scores.tolist()
        == [score for score in reversed(counts) for _ in range(counts[score])][:capacity]
    )


def test_membership_in_a_sorted_array() -> None:
    among = np.array([2, 5, 9], np.uint64)
    assert is_in(np.array([1, 2, 9, 10], np.uint64), among).tolist() == [False, True, True, False]
    assert is_in(among, np.zeros(0, np.uint64)).tolist() == [False, False, False]
