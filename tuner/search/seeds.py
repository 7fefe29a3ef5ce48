"""Points to try first: an estimate's favourite and alternatives to it, and what won on
similar workloads, carried over into this workload's space by knob name and nearest
value."""

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

MOST_SEEDS = 8  # points tried among the search's own: an eighth of a small budget


def first_points(
    domain: Domain,
    featurizer: Featurizer,
    estimate: Prior,
    winners: Sequence[Config],
    algorithms: Sequence[Sequence[int]] = (),
    *,
    seed: int,
) -> Points:
    """What `estimate` likes best, made in one way and others, in turn with what won on
    similar workloads; shape (k, knobs), at most MOST_SEEDS. `algorithms`: as
    `alternatives` takes them.

    The estimate is the one that no history has taught: what a history taught wrongly
    shows in none of the favourites that it has a search try beside these.
    """
    liked = alternatives(domain, featurizer, estimate, algorithms, seed=seed)
    carried = carried_over(domain.space, winners)
    carried = carried[domain.contains(carried)]
    points = [point for pair in zip_longest(liked, carried) for point in pair if point is not None]
    return np.array(points[:MOST_SEEDS], np.int32)


def carried_over(space: Space, configs: Sequence[Config]) -> Points:
    """The points of `space` nearest to configs of other spaces, each once, in their
    order; shape (k, knobs).

    Configs of a sketch this space lacks are left out. A knob takes the same value where
    it has it, else the nearest in log2 with as many numbers, else its first.
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


def _nearest(values: tuple[Value, ...], value: Value) -> int:
    value = tuple(value) if isinstance(value, list) else value
    if value in values:
        return values.index(value)
    distances = [_distance(value, value) for value in values]
    return min(range(len(values)), key=distances.__getitem__)


def _distance(a: Value, b: Value) -> float:
    if isinstance(a, str) or isinstance(b, str):
        return inf
    left, right = (a,) if isinstance(a, int) else a, (b,) if isinstance(b, int) else b
    if len(left) != len(right):
        return inf
    return sum(abs(log2(1 + abs(x)) - log2(1 + abs(y))) for x, y in zip(left, right, strict=True))
