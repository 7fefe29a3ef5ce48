"""Spaces that several tests look at, made once in a process, and points drawn of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Points, Space
from tuner.spaces.core.target_space import TargetSpace
from tuner.target.target import Target
from tuner.workload.spec import parse_spec


@dataclass(frozen=True, kw_only=True)
class _Key:
    spec: str
    threads: int
    described: str  # of the target, which cannot be hashed
    target: Target = field(compare=False)


def shared_space(spec: str, target: Target, threads: int = 1) -> TargetSpace[Any]:
    """The space of a workload, which nobody changes."""
    return _space(_Key(spec=spec, threads=threads, described=repr(target), target=target))


@lru_cache(maxsize=64)
def _space(key: _Key) -> TargetSpace[Any]:
    return space_of(parse_spec(key.spec), key.target, key.threads)


def drawn_once(space: Space, rng: np.random.Generator, count: int) -> Points:
    """The points that `count` random ones are, each once: a sketch without knobs has one
    point, which is drawn as often as all points of another."""
    points = space.sample(rng, count)
    _, first = np.unique(points, axis=0, return_index=True)
    return points[np.sort(first)]
