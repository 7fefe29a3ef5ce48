"""Names of loops: the block a loop belongs to, its axis, and the level of a split axis.

The only place that knows how levels and loops are written: `<axis>_<level>` for an axis
of a tiled nest, `<block>.<axis>` for a loop, `<block>_init.<axis>` for a loop of the
initialisation that was split off a reduction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tuner.workload.expression import Axis


class Level(StrEnum):
    """A level of a split axis; its value is the suffix of the axis' name."""

    BLOCK = "2"  # cache blocks, blocks of a GPU's grid, blocks of a reduction
    TILE = "1"  # register tiles in a cache block, steps in a block of a reduction
    REGISTER = "0"  # vectors or elements in registers, unrolled
    VECTOR = "v"  # adjacent vectors with their lanes, as one
    VECTOR_LANE = "l"  # elements of a vector
    STEP = "s"  # steps of a block of threads along a row
    THREAD = "t"
    WARP = "w"
    FRAGMENT = "f"  # tensor-core fragments of a warp
    ELEMENT = "e"  # elements of a fragment
    PACKED = "p"  # a block of the reduction as it lies in a packed copy

    def name_of(self, axis: str) -> str:
        """The name of the axis at this level."""
        return f"{axis}_{self.value}"

    def axis(self, axis: str, extent: int) -> Axis:
        return Axis(name=self.name_of(axis), extent=extent)

    def holds(self, name: str) -> bool:
        """Whether a name is that of an axis at this level."""
        return name.endswith(f"_{self.value}")


@dataclass(frozen=True, slots=True, repr=False)
class LoopId:
    """A loop of a block, by the name of its axis."""

    block: str
    axis: str
    initial: bool = False  # of the initialisation split off the block's reduction

    @classmethod
    def of(cls, block: str, axis: Axis, *, initial: bool = False) -> LoopId:
        return cls(block, axis.name, initial)

    @property
    def block_name(self) -> str:
        """The name of the block in the scheduled module."""
        return f"{self.block}_init" if self.initial else self.block

    def __str__(self) -> str:
        return f"{self.block_name}.{self.axis}"

    def __repr__(self) -> str:
        return repr(str(self))


def loops_of(block: str, axes: Iterable[Axis]) -> tuple[LoopId, ...]:
    """The block's loops over the axes, in their order."""
    return tuple(LoopId.of(block, axis) for axis in axes)
