"""Software prefetches of packed copies, where a sum with few rows walks along one.

Such a copy of a whole operand, as of constant weights, lies in the order of reading and is
read once for each few rows: memory decides the time. A CPU prefetches what follows, but
stops at the end of a page, and a core that unpacks weights looks less far ahead than one
that only reads (docs/design-notes/0045 has the probes).
"""

from __future__ import annotations

from math import prod

from tuner.spaces.cpu.packing import PackedCopy
from tuner.spaces.cpu.tile_loops import TileLoops
from tuner.spaces.cpu.tile_plan import Instruction, TilePlan
from tuner.spaces.program.program import Prefetch
from tuner.spaces.program.tiles import add, constant
from tuner.spaces.rewrite.access import Access
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Binary, Read, Scalar, Stage, Var, substitute

# From 2 to 16 KiB the distance hardly matters.
AHEAD_BYTES = 4096
MOST_USES = 8  # of an element, beyond which computing takes far longer than fetching


def is_streamed(access: Access, stage: Stage, vector: str | None, instruction: Instruction) -> bool:
    """Whether what follows in a packed copy of the whole operand is worth a prefetch: each
    step of the sum takes other vectors of it, and few rows meet them."""
    moving = {axis.name for axis in stage.reduce_axes if axis.extent > 1}
    uses = prod(axis.extent for axis in stage.axes if axis.name not in access.axes)
    return (
        stage.reducer is not None
        and vector in access.axes
        and access.axes.issuperset(moving.difference(instruction.axes))
        and uses <= MOST_USES
    )


def copy_prefetches(
    plan: TilePlan, stage: Stage, loops: TileLoops, access: Access, copy: PackedCopy
) -> tuple[Prefetch, ...]:
    """What the sum will read of a packed copy a page further along, each line once."""
    if not is_streamed(access, stage, plan.vector, plan.instruction):
        return ()
    buffer, tiled = copy.buffer, plan.tiled(str(plan.vector))
    element_bytes = DTYPE_BYTES[buffer.dtype]
    vectors, _ = tiled.register
    first: list[Scalar] = [
        Binary("eq", Var(axis.name), constant(0))
        for other in plan.spatial
        if other.axis.name not in access.axes
        for axis in other.register
        if axis.extent > 1
    ]
    in_line = plan.line_bytes // (buffer.shape[-1] * element_bytes)
    if in_line > 1 and vectors.extent > 1:
        place = Binary("floormod", Var(vectors.name), constant(in_line))
        first.append(Binary("eq", place, constant(0)))
    still = {axis.name: constant(0) for axis in (tiled.register[-1], *loops.instruction)}
    *outer, last = (substitute(index, still) for index in copy.read.indices)
    further = add(last, constant(AHEAD_BYTES // element_bytes))
    return (Prefetch(read=Read(buffer.name, (*outer, further)), when=tuple(first)),)
