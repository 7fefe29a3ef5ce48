"""Keys, lists and neighbours of points, also where sketches share knobs."""

from __future__ import annotations

import numpy as np

from tuner.search.domain import Domain
from tuner.spaces.core.space import Combination, Knob, Space

A, B, C, D = (
    Knob(name=f"s.{name}", values=tuple(range(size)))
    for name, size in (("a", 3), ("b", 4), ("c", 2), ("d", 5))
)
# The second takes its knobs in another order than the columns have; the third has one of its own.
SHARED = Space(
    (
        Combination(name="x", knobs=(A, B)),
        Combination(name="y", knobs=(C, B, A)),
        Combination(name="z", knobs=(A, D)),
        Combination(name="w", knobs=()),
    )
)


def huge() -> Space:
    knobs = [Knob(name=f"s.{number}", values=tuple(range(100))) for number in range(12)]
    return Space(
        (
            Combination(name="x", knobs=tuple(knobs[:11])),
            Combination(name="y", knobs=tuple(knobs[1:])),
        )
    )


def test_keys_are_ranks_where_sketches_share_knobs() -> None:
    domain = Domain(SHARED)
    points = domain.points()
    assert np.array_equal(points, np.array(list(SHARED)))
    assert domain.keys(points).tolist() == list(range(SHARED.size))


def test_neighbours_stay_in_the_space() -> None:
    domain, rng = Domain(SHARED), np.random.default_rng(0)
    points = domain.sample(rng, 500)
    listed = set(map(bytes, domain.points()))
    for _ in range(20):
        points = domain.neighbours(rng, points, sketch_change=0.1)
        assert set(map(bytes, points)) <= listed


def test_points_of_a_space_beyond_64_bits_have_keys_of_their_own() -> None:
    space = huge()
    assert space.size > 2**64
    points = np.unique(Domain(space).sample(np.random.default_rng(0), 4000), axis=0)
    assert len(np.unique(Domain(space).keys(points))) == len(points)
