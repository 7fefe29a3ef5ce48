"""Points to try first: what won on similar workloads, carried over into this workload's space by knob name and nearest value, and
alternatives to an estimate's favourite."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log2

import numpy as np

from tuner.cost_model.history import Prior
from tuner.cost_model.model import Featurizer
from tuner.search.alternatives import alternatives
from tuner.search.domain import Domain
from tuner.spaces.space import Config, Points, Space, Value

MOST_SEEDS = 8  # points tried among the search's own: an eighth of a small budget


def first_points(
    domain: Domain,
    featurizer: Featurizer,
    prior: Prior,
    winners: Sequence[Config],
    algorithms: Sequence[Sequence[int]] = (),
    *,
    seed: int,
) -> Points:
    """What won on similar workloads, the best of each algorithm where there are several, and as far as there is room what `prior`
    likes nearly as much as its favourite, made otherwise; shape (k, knobs), at most MOST_SEEDS. `algorithms`: as `alternatives`
    takes them."""
    room = MOST_SEEDS - (len(algorithms) if len(algorithms) > 1 else 0)
    points = carried_over(domain.space, winners)[:room]
    if len(points) < MOST_SEEDS:
        points = np.concatenate([points, alternatives(domain, featurizer, prior, algorithms, seed=seed)])[:MOST_SEEDS]
    return points


def carried_over(space: Space, configs: Sequence[Config]) -> Points:
    """The points of `space` nearest to configs of other spaces, each once, in their order; shape (k, knobs).

    Configs of a sketch this space lacks are left out. A knob takes the same value where it has it, else the nearest in log2 with
    as many numbers, else its first.
    """
    names = [sketch.name for sketch in space.sketches]
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


def _nearest(values: tuple[Value, ...], wanted: Value) -> int:
    wanted = tuple(wanted) if isinstance(wanted, list) else wanted
    if wanted in values:
        return values.index(wanted)
    distances = [_distance(value, wanted) for value in values]
    return min(range(len(values)), key=distances.__getitem__)


def _distance(a: Value, b: Value) -> float:
    if isinstance(a, str) or isinstance(b, str):
        return inf
    left, right = (a,) if isinstance(a, int) else a, (b,) if isinstance(b, int) else b
    if len(left) != len(right):
        return inf
    return sum(abs(log2(1 + abs(x)) - log2(1 + abs(y))) for x, y in zip(left, right, strict=True))
