"""Choose configs for a GPU that cannot compile any.

Most are the best by the search's own estimate, the others are random.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from tuner.cost_model.cuda.estimate import CudaEstimate
from tuner.errors import IllegalSchedule
from tuner.spaces.core.space import Config
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cuda.facts import KernelFacts

SAMPLED = 20_000  # points that the estimate orders
RANDOM = 0.25  # share of the carried ones taken without it


def chosen(space: TargetSpace[KernelFacts], count: int, rng: np.random.Generator) -> list[Config]:
    """Choose `count` different legal configs, the estimate's best first.

    There are fewer where the space has no more.
    """
    points = np.unique(space.space.sample(rng, SAMPLED), axis=0)
    ordered = by_turns(
        [
            space.space.config(point)
            for point in points[np.argsort(CudaEstimate(space)(points), kind="stable")]
        ]
    )
    best = ordered[: count - int(count * RANDOM)]
    rest = ordered[len(best) :]
    order = rng.permutation(len(rest))
    legal: list[Config] = []
    for config in [*best, *(rest[place] for place in order)]:
        if len(legal) == count:
            break
        try:
            space.program(config)
        except IllegalSchedule:
            continue
        legal.append(config)
    return legal


def by_turns(configs: Sequence[Config]) -> list[Config]:
    """One of each sketch in turn: which sketch is the faster is what a race is to show."""
    queues: dict[str, list[Config]] = {}
    for config in configs:
        queues.setdefault(str(config["sketch"]), []).append(config)
    return [
        config
        for of_each_sketch in zip_longest(*queues.values())
        for config in of_each_sketch
        if config is not None
    ]
