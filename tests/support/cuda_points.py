"""Random points of one CUDA sketch."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from tuner.spaces.core.space import Config
from tuner.spaces.core.target_space import TargetSpace


def configs(space: TargetSpace[Any], count: int, seed: str, sketch: str = "mma") -> list[Config]:
    """Points of the sketch alone."""
    row = next(
        number
        for number, combination in enumerate(space.space.combinations)
        if f":{sketch}" in combination.name
    )
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    sampled: list[Config] = []
    while len(sampled) < count:
        sampled += [
            space.space.config(point) for point in space.space.sample(rng, 16) if point[0] == row
        ]
    return sampled[:count]
