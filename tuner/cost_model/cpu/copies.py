"""Elements that a nest copies before it reads them, for a batch of configs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.cost_model.arrays import Floats, Mask, products_before
from tuner.cost_model.cpu.nests import PACK, PACK_ROOT, PAD, PAD_PARTS, Nests, NestTable
from tuner.spaces.cpu.packing import SHORTEST


@dataclass(frozen=True, kw_only=True)
class CopyCounts:
    """Elements copied in the whole kernel. All arrays have shape (n,)."""

    padded: Floats  # once, with a border
    padded_parts: Floats  # with a border, a part at a time where it is used
    packed: Floats  # where they are used, again for each loop outside the last they move with
    packed_at_root: Floats  # before all loops
    packed_elementwise: Floats  # of `packed`, neither in vectors nor transposed in rectangles
    packed_elementwise_at_root: Floats  # the same of `packed_at_root`


def copy_counts(table: NestTable, nest: Nests) -> CopyCounts:
    """Copies of all inputs; rows are never copied, and fused nests count their own."""
    counts = np.zeros((6, nest.span.shape[1]), np.float32)
    padded, parts, packed, at_root, elementwise, elementwise_at_root = counts
    packed += nest.copied
    apart = table.is_rows or table.facts.fusion is not None
    for number, read in enumerate(() if apart else table.reads[: table.inputs]):
        mode, whole = nest.copy_mode[number], float(np.prod(read.shape))
        each_call = float(not table.constant[number])
        padded += whole * each_call * (mode == PAD).astype(np.float32)
        parts += whole * (mode == PAD_PARTS).astype(np.float32)
        if not nest.packed[number].any():
            continue
        elements = float(np.where(read.uses, table.axes.extents, 1).prod())
        where_used = elements * _repeats(table, number, nest) * (mode == PACK)
        first = elements * each_call * (mode == PACK_ROOT).astype(np.float32)
        one_by_one = ~_moves_vectors(table, number, nest)
        packed += where_used
        at_root += first
        elementwise += where_used * one_by_one
        elementwise_at_root += first * one_by_one
    return CopyCounts(
        padded=padded,
        padded_parts=parts,
        packed=packed,
        packed_at_root=at_root,
        packed_elementwise=elementwise,
        packed_elementwise_at_root=elementwise_at_root,
    )


def _repeats(table: NestTable, number: int, nest: Nests) -> Floats:
    """How often a copy at its place of use is made of each element, (n,)."""
    levels = slice(0, table.spatial + 1)
    moves, extent = table.reads[number].uses[nest.axis[levels]], nest.extent[levels]
    outside = products_before(np.maximum(extent * ~moves, 1.0))[1:]
    repeats: Floats = np.maximum((outside * (moves & (extent > 1))).max(axis=0), 1.0)
    return repeats


def _moves_vectors(table: NestTable, number: int, nest: Nests) -> Mask:
    """Whether a packed copy moves whole vectors, (n,).

    It does where elements are contiguous along the vector's lanes, or along another
    axis in rectangles that are transposed in registers.
    """
    read, vector, configs = table.reads[number], nest.vector, nest.span.shape[1]
    padded = table.operands[number].padded
    if vector >= 0 and read.uses[vector] and read.strides[vector] == 1:
        return np.ones(configs, np.bool_)
    if table.axes.instruction_axes:  # contiguous along what an instruction takes
        contiguous = bool((read.strides[table.spatial :][~table.axes.stepped] == 1).any())
        # Rows, or rectangles of words.
        facts = table.facts
        whole = facts.loads_whole_rows or facts.multiplies_matrices
        whole = whole or (vector >= 0 and bool(read.uses[vector]))
        return np.full(configs, contiguous and whole and not padded)
    if vector < 0 or read.strides[vector] < 0 or padded or read.dtype_bytes < 4:
        return np.zeros(configs, np.bool_)
    if nest.lanes < SHORTEST:
        return np.zeros(configs, np.bool_)
    return _transposes(table, number, nest)


def _transposes(table: NestTable, number: int, nest: Nests) -> Mask:
    """Whether a copy has rectangles along a contiguous axis other than the vector's, (n,)."""
    read, lanes = table.reads[number], nest.lanes
    transposes = np.zeros(nest.span.shape[1], np.bool_)
    for axis in np.flatnonzero(read.strides == 1):
        if axis >= table.spatial:
            blocks = np.maximum(
                nest.extent[table.spatial] * (nest.axis[table.spatial] == axis), 1.0
            )
            transposes |= table.axes.lengths[axis] >= lanes * blocks
        else:
            vectors = nest.span[axis] / lanes
            transposes |= vectors == np.floor(vectors)
    if not read.uses[nest.vector]:
        # Rows of a register tile, beside what the reduction walks along.
        along_reduction = bool((read.strides[table.spatial :] == 1).any())
        of_tile = nest.span[: table.spatial][read.uses[: table.spatial]]
        transposes &= along_reduction & (of_tile.prod(axis=0) > 1)
    return transposes
