"""How the reduction of a tile nest is blocked and unrolled: the values worth trying."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from tuner.spaces.cpu.facts import Unrolling
from tuner.spaces.cpu.tiled_stage import TiledStage

# Iterations in a block of the reduction, and the extent from which blocks are offered.
BLOCKS = (4, 8, 16, 32, 64, 128, 192, 256, 384, 512, 768, 1024)
LEAST_BLOCKED = 64
# Terms of a sum over several axes from which blocks of a shorter axis are offered too: what all
# of them read, as of a convolution's weight gradient over images and pixels, leaves the caches.
LEAST_TERMS = 4096
# Iterations of a reduction axis that LLVM unrolls by itself, whatever else is in them.
SHORT_REDUCTION = 7
UNROLL_FACTORS = (1, 2, 4)  # iterations of a longer axis in an unrolled body
LONGEST_INDIVISIBLE = 9  # axis that is unrolled as a whole where no factor divides it


def reduction_blocks(stage: TiledStage) -> list[int]:
    """Iterations of a block of the longest reduction axis; its whole extent means one block."""
    extent = stage.main_reduction.extent
    terms = prod(axis.extent for axis in stage.group.anchor.reduce_axes)
    blocked = extent >= LEAST_BLOCKED or terms >= LEAST_TERMS
    return block_sizes(extent, BLOCKS) if blocked else [extent]


def block_sizes(extent: int, preferred: Collection[int]) -> list[int]:
    """The divisors of an extent nearest to each preferred size, then the extent itself."""
    divisors = [size for size in range(min(preferred), extent // 2 + 1) if extent % size == 0]
    nearest = {
        min(divisors, key=lambda size: abs(size - want))
        for want in preferred
        if divisors and want < extent
    }
    return [*sorted(nearest), extent]


def unrollings(stage: TiledStage) -> list[Unrolling]:
    """The innermost reduction axis, and how many of its iterations are unrolled.

    A short axis is unrolled as a whole: the compiler would do so anyway. A slightly
    longer one that no factor divides, as the 9 iterations of a 3x3 window, may be
    unrolled as a whole, because it could not be unrolled otherwise.
    """
    axes = stage.group.anchor.reduce_axes
    walked = [
        (position, axis)
        for position, axis in enumerate(axes)
        if axis.name not in stage.instruction.axes and axis.extent > 1
    ]
    values = []
    for position, axis in walked:
        factors = [factor for factor in UNROLL_FACTORS if axis.extent % factor == 0]
        if axis.extent <= SHORT_REDUCTION:
            factors = [axis.extent]
        elif axis.extent <= LONGEST_INDIVISIBLE and factors == [1]:
            factors.append(axis.extent)
        values += [Unrolling(position=position, factor=factor) for factor in factors]
    return values or [Unrolling(position=len(axes) - 1, factor=1)]
