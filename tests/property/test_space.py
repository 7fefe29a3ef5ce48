"""Properties of any space: sampling stays inside, size equals enumeration, numbers and
configs lead back to their points."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import UsageError
from tuner.search.domain import Domain
from tuner.spaces.core.space import Combination, Knob, Space, Value

VALUES: st.SearchStrategy[Value] = st.one_of(
    st.integers(0, 512),
    st.text("abcxyz_", min_size=1, max_size=5),
    st.lists(st.integers(1, 64), min_size=1, max_size=3).map(tuple),
)


@st.composite
def spaces(
    draw: st.DrawFn, *, most_sketches: int = 3, most_knobs: int = 4, most_values: int = 5
) -> Space:
    def knobs(prefix: str, most: int) -> list[Knob]:
        values = [
            tuple(draw(st.lists(VALUES, min_size=1, max_size=most_values, unique=True)))
            for _ in range(most)
        ]
        return [Knob(name=f"{prefix}.k{k}", values=choices) for k, choices in enumerate(values)]

    sketches, shared = [], knobs("shared", draw(st.integers(0, 3)))
    for s in range(draw(st.integers(1, most_sketches))):
        own = knobs(f"s{s}", draw(st.integers(0, most_knobs)))
        included = [knob for knob in shared if draw(st.booleans())]
        sketches.append(
            Combination(
                name=f"s{s}", knobs=tuple(draw(st.permutations(own + included))[:most_knobs])
            )
        )
    return Space(tuple(sketches))


SEEDS = st.integers(0, 2**32 - 1)


@given(spaces(), SEEDS)
def test_samples_are_canonical_points_of_the_space(space: Space, seed: int) -> None:
    points = space.sample(np.random.default_rng(seed), 50)
    assert points.dtype == np.int32 and points.shape == (50, len(space.knobs))
    assert ((points >= 0) & (points < space.cardinalities)).all()
    assert np.array_equal(points, space.canonical(points))
    assert all(0 <= space.rank(point) < space.size for point in points)


@given(spaces())
def test_size_is_the_number_of_points_and_of_their_meanings(space: Space) -> None:
    points = [point.copy() for point in space]
    assert len(points) == space.size == len({point.tobytes() for point in points})
    used = []
    for point in points:
        names = {"sketch", *(knob.name for knob in space.combinations[int(point[0])].knobs)}
        used.append(
            json.dumps(
                {name: value for name, value in space.config(point).items() if name in names},
                sort_keys=True,
            )
        )
    assert len(set(used)) == space.size


@given(spaces())
def test_a_number_leads_to_its_point_and_back(space: Space) -> None:
    for rank in range(space.size):
        assert space.rank(space.unrank(rank)) == rank


@given(spaces(), SEEDS)
def test_a_config_survives_json(space: Space, seed: int) -> None:
    for point in space.sample(np.random.default_rng(seed), 10):
        config = space.config(point)
        assert set(config) == {knob.name for knob in space.knobs}
        assert np.array_equal(space.point(json.loads(json.dumps(config))), point)


@given(spaces(), st.integers(0, 10))
def test_numbers_outside_are_refused(space: Space, beyond: int) -> None:
    for rank in (-1 - beyond, space.size + beyond):
        with pytest.raises(UsageError, match="outside the space"):
            space.unrank(rank)


@given(spaces())
def test_a_domain_lists_the_points_by_their_number(space: Space) -> None:
    domain = Domain(space)
    points = domain.points()
    assert np.array_equal(points, np.stack([point.copy() for point in space]))
    assert domain.keys(points).tolist() == list(range(space.size))


@given(spaces(), SEEDS)
def test_neighbours_are_points_of_the_space_one_or_two_knobs_away(space: Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = space.sample(rng, 60)
    before = points.copy()
    moved = Domain(space).neighbours(rng, points, sketch_change=0.0)
    assert np.array_equal(points, before), "the points given are left as they are"
    assert np.array_equal(moved, space.canonical(moved))
    assert ((moved >= 0) & (moved < space.cardinalities)).all()
    assert np.array_equal(moved[:, 0], points[:, 0])
    assert ((moved != points).sum(axis=1) <= 2).all()


@settings(max_examples=20)
@given(spaces(most_sketches=2, most_knobs=2, most_values=3), SEEDS)
def test_neighbourhood_is_symmetric_and_leads_everywhere(space: Space, seed: int) -> None:
    """Whatever can be reached in one move can be left by one; repeated moves reach every point."""
    domain, rng = Domain(space), np.random.default_rng(seed)
    points = np.repeat(domain.points(), 300, axis=0)
    moved = domain.neighbours(rng, points, sketch_change=0.2)
    edges = set(zip(domain.keys(points).tolist(), domain.keys(moved).tolist(), strict=True))
    same_sketch = {(a, b) for a, b in edges if space.unrank(a)[0] == space.unrank(b)[0]}
    single = {(a, b) for a, b in same_sketch if (space.unrank(a) != space.unrank(b)).sum() == 1}
    assert {(b, a) for a, b in single} == single
    reached, frontier = {0}, {0}
    while frontier:
        frontier = {b for a, b in edges if a in frontier} - reached
        reached |= frontier
    assert reached == set(range(space.size))


@given(spaces(), SEEDS, st.integers(1, 30))
def test_a_restricted_domain_never_leaves_its_rows(space: Space, seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.unique(space.sample(rng, count), axis=0)
    domain = Domain(space, rows)
    allowed = set(domain.keys(rows).tolist())
    assert domain.size == len(allowed)
    assert set(domain.keys(domain.sample(rng, 40)).tolist()) <= allowed
    assert set(domain.keys(domain.neighbours(rng, domain.sample(rng, 40))).tolist()) <= allowed
    assert (
        set(domain.keys(np.stack([domain.unrank(rank) for rank in range(domain.size)])).tolist())
        == allowed
    )


def test_spaces_beyond_64_bits_have_exact_sizes_and_distinct_keys() -> None:
    knobs = tuple(Knob(name=f"a.k{k}", values=tuple(range(1000))) for k in range(30))
    space = Space(
        (
            Combination(name="a", knobs=knobs),
            Combination(name="b", knobs=(Knob(name="b.k", values=(1, 2)),)),
        )
    )
    assert space.size == 1000**30 + 2
    points = np.unique(space.sample(np.random.default_rng(0), 20_000), axis=0)
    assert len(set(Domain(space).keys(points).tolist())) == len(points)
    assert space.rank(space.unrank(10**80)) == 10**80
