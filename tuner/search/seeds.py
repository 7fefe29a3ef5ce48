"""Points to try first: an estimate's favourites, and winners of similar workloads.

Winners are carried over into this workload's space by knob name and nearest value.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from math import inf, log2

import numpy as np

from tuner.cost_model.history import Prior
from tuner.cost_model.model import Featurizer
from tuner.search.alternatives import alternatives
from tuner.search.domain import Domain
from tuner.spaces.core.space import Config, Points, Space, Value

MOST_SEEDS = 8  # points: an eighth of a small budget


def first_points(
    domain: Domain,
    featurizer: Featurizer,
    estimate: Prior,
    winners: Sequence[Config],
    algorithms: Sequence[Sequence[int]] = (),
    *,
    seed: int,
) -> Points:
    """Favourites of `estimate` and their alternatives, alternating with `winners`.

    Shape (k, knobs), at most MOST_SEEDS points. `algorithms` is as `alternatives` takes
    it. The estimate must not be one that history has corrected: the search tries
    favourites of that one anyway, and these here reveal what history taught wrongly.
    """
    favourites = alternatives(domain, featurizer, estimate, algorithms, seed=seed)
    return with_winners(domain, favourites, winners)


def with_winners(domain: Domain, favourites: Points, winners: Sequence[Config]) -> Points:
    """Favourites of an estimate, shape (k, knobs), alternating with `winners`.

    At most MOST_SEEDS points. Winners that the domain does not have when they are carried
    over are left out.
    """
    carried = carried_over(domain.space, winners)
    carried = carried[domain.contains(carried)]
    points = [
        point for pair in zip_longest(favourites, carried) for point in pair if point is not None
    ]
    return np.array(points[:MOST_SEEDS], np.int32)


def carried_over(space: Space, configs: Sequence[Config]) -> Points:
    """The points of `space` nearest to configs of other spaces, shape (k, knobs).

    They are in the order of the configs, each once. Configs of a sketch that this space
    lacks are left out. A knob takes the same value if it has it, else the nearest in log2
    with as many numbers, else its first.
    """
    names = [sketch.name for sketch in space.combinations]
    rows: dict[bytes, np.ndarray[tuple[int], np.dtype[np.int32]]] = {}
    for config in configs:
        if config.get("sketch") not in names:
            continue
        point = np.zeros(len(space.knobs), np.int32)
        for column, knob in enumerate(space.knobs):
            if knob.name in config:
                point[column] = _nearest(knob.values, config[knob.name])
        point = space.canonical(point[None, :])[0]
        rows.setdefault(point.tobytes(), point)
    return np.stack(list(rows.values())) if rows else np.zeros((0, len(space.knobs)), np.int32)


def _nearest(values: tuple[Value, ...], carried: Value) -> int:
    """The index of the value equal or nearest to a carried one; 0 where none is near."""
    carried = tuple(carried) if isinstance(carried, list) else carried
    if carried in values:
        return values.index(carried)
    distances = [_distance(value, carried) for value in values]
    return min(range(len(values)), key=distances.__getitem__)


def _distance(a: Value, b: Value) -> float:
    """The distance of two values in log2; infinite for texts and unequal lengths."""
    if isinstance(a, str) or isinstance(b, str):
        return inf
    left, right = (a,) if isinstance(a, int) else a, (b,) if isinstance(b, int) else b
    if len(left) != len(right):
        return inf
    return sum(abs(log2(1 + abs(x)) - log2(1 + abs(y))) for x, y in zip(left, right, strict=True))
