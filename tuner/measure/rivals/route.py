"""A route: one way of a library to compute a workload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tuner.measure.check import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One way of a library to compute the workload, on inputs in a layout that it prefers."""

    name: str  # e.g. "nhwc"
    call: Callable[[], object]
    result: Callable[[], Array]  # the output of the last call, in the workload's own layout
