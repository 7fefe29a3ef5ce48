"""What a GPU sketch says of its kernels: all that the cost model knows of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from tuner.spaces.core.space import Knob
from tuner.spaces.cuda.limits import Footprint
from tuner.spaces.rewrite.groups import Group


class KernelKind(Enum):
    """How the threads of a block share the work of its tile."""

    TILE = auto()  # each computes a tile in its registers
    ROWS = auto()  # a group of them goes along a row
    TENSOR_CORES = auto()  # each warp has fragments of a product
    WARPGROUPS = auto()  # each warpgroup has panels of a product
    PATCH = auto()  # each computes one small square of a map


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """The kernels of one sketch of one group, as far as their time depends on it."""

    kind: KernelKind
    group: Group
    owner: str  # begins the names of its knobs: "<group>.<sketch>"
    knobs: tuple[Knob, ...]
    footprint: Callable[[tuple[int, ...]], Footprint]  # of a block, by its tile or shape
