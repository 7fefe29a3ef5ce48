"""How an operand of a tile nest may be copied before it is read."""

from __future__ import annotations

from math import prod

from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.tiled_stage import TiledStage
from tuner.spaces.program.program import LARGEST_SHUFFLED_STRIDE
from tuner.spaces.rewrite.access import Access, in_bounds_condition
from tuner.workload.affine import value_range
from tuner.workload.expression import Var, walk

MOST_UNREAD = 2  # elements of a padded copy for each that is read


def copy_modes(stage: TiledStage, access: Access) -> list[CopyMode]:
    """The modes worth trying for one read, of vectors along the vectorised axis."""
    if (
        stage.across is not None
        and not stage.contiguous(access)
        and access.stride(stage.across) == 1
        and not access.padded
    ):
        return [CopyMode.PACK]
    if access.padded and access.gathered:
        # Where it reads is unknown: each element is compared with the border,
        # whatever copies there are.
        return [CopyMode.NONE]
    stride = 0 if stage.vector is None else access.stride(stage.vector)
    in_vectors = stride is not None and 0 <= stride <= LARGEST_SHUFFLED_STRIDE
    packable = stage.packable(access)
    modes: list[CopyMode] = []
    if access.padded:
        times = _times_read(stage, access)
        if (in_vectors and not _pads_lanes(stage, access)) or times <= 1:
            modes.append(CopyMode.NONE)
        if times * MOST_UNREAD >= 1:
            modes.append(CopyMode.PAD)
            if stage.pads_in_parts(access):
                modes.append(CopyMode.PAD_PARTS)
    elif in_vectors or not packable:
        modes.append(CopyMode.NONE)
    if packable:
        modes += [CopyMode.PACK, CopyMode.PACK_ROOT]
    return modes


def _times_read(stage: TiledStage, access: Access) -> float:
    """How often an element of a padded copy is read on average, of one that reaches from
    the first read to the last."""
    anchor = stage.group.anchor
    reach = [value_range(index, anchor.extents) for index in access.read.indices]
    return anchor.points / prod(span.high - span.low + 1 for span in reach)


def _pads_lanes(stage: TiledStage, access: Access) -> bool:
    """Whether being inside the tensor differs between the lanes of a vector."""
    shape, extents = stage.context.shapes[access.read.tensor], stage.group.anchor.extents
    inside = in_bounds_condition(access.read.indices, shape, extents)
    return inside is not None and any(
        isinstance(node, Var) and node.name == stage.vector for node in walk(inside)
    )
