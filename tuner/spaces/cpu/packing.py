"""Packed copies: an operand laid out in the order in which a nest reads it.

It is transposed in registers where that pays.

An operand whose lanes lie apart in memory would be gathered one element at a time; so
would the rows of a register tile of one without lanes. Where another of its iterators
is contiguous, vectors are loaded along that one, a square or a rectangle of them is
transposed by shuffles, and stored along the lanes, or rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from tuner.spaces.cpu.tile_plan import ReductionAxis, TilePlan
from tuner.spaces.program.loops import Level, LoopId
from tuner.spaces.program.marks import (
    Interleave,
    Mark,
    TransposeInRegisters,
    TransposeWordsInRegisters,
    Vectorize,
)
from tuner.spaces.program.program import Block, Buffer
from tuner.spaces.program.tiles import add, constant, times
from tuner.spaces.rewrite.access import Access
from tuner.workload.dtypes import DTYPE_BYTES, DType
from tuner.workload.expression import Axis, Read, Scalar, Select, Var, substitute, walk

SHORTEST = 4  # lanes of a vector worth loading, to be transposed


@dataclass(frozen=True, slots=True)
class PackedCopy:
    """A block that copies what the nest reads of an operand, and the buffer it fills."""

    block: Block
    buffer: Buffer
    read: Read  # what the nest reads instead, in the nest's iterators
    levels: tuple[Axis, ...]  # cache-block iterators the copy depends on
    marks: tuple[Mark, ...]  # to be set once the copy is in its place


def packed_copy(
    name: str, access: Access, value: Scalar, plan: TilePlan, dtype: DType
) -> PackedCopy:
    """The copy of one read; `value` is the read in the stage's iterators, padding made explicit."""
    spatial = [name for name in plan.outer_order if name in access.axes]
    reduction = [axis for axis in plan.reduction if axis.axis.name in access.axes]
    outer = [plan.tiled(name).outer for name in spatial] + [
        axis.outer for axis in reduction if axis.blocked
    ]
    inner = [plan.tiled(name).inner for name in plan.inner_order if name in access.axes]
    registers = [
        axis for name in spatial if name != plan.vector for axis in plan.tiled(name).register
    ]
    if plan.vector in access.axes:
        registers += plan.tiled(str(plan.vector)).register
    if plan.instruction.paired is not None:
        return _of_matrices(name, access, value, plan, (outer, inner, registers), dtype)
    if access.axes.intersection(plan.instruction.axes):
        return _for_instruction(name, access, value, plan, (outer, inner, registers), dtype)
    # What lies within its tensor only under a condition is read one by one; and TVM
    # shuffles no 16-bit floats.
    along = (
        contiguous_across(access, plan)
        if isinstance(value, Read) and DTYPE_BYTES[dtype] >= 4
        else None
    )
    axes = [*outer, *inner, *(_within(axis) for axis in reduction), *registers]
    loops, marks = axes, list[Mark]()
    if along is not None:
        rows = next(
            axis for axis in reversed(registers) if axis.extent > 1
        )  # the lanes, where the operand has them
        loops = [*(axis for axis in axes if axis not in (along, rows)), along, rows]
        lanes = min(plan.tiled(str(plan.vector)).lanes, 1 << (along.extent.bit_length() - 1))
        marks = [TransposeInRegisters(loop=LoopId.of(name, along), vector_lanes=lanes)]
    elif plan.vector in access.axes and access.stride(str(plan.vector)) == 1:
        marks = [Vectorize(loop=LoopId.of(name, axes[-1]))]
    indices = {name: plan.tiled(name).index for name in spatial}
    indices |= {axis.axis.name: _position(axis, Var(_within(axis).name)) for axis in reduction}
    block = Block(
        name=name,
        axes=tuple(loops),
        buffer=name,
        indices=tuple(Var(axis.name) for axis in axes),
        body=substitute(value, indices),
    )
    here = {axis.name: Var(axis.name) for axis in axes} | {
        _within(axis).name: axis.within for axis in reduction
    }
    return PackedCopy(
        block=block,
        buffer=Buffer(name=name, shape=tuple(axis.extent for axis in axes), dtype=dtype),
        read=Read(name, tuple(here[axis.name] for axis in axes)),
        levels=tuple(outer),
        marks=tuple(marks),
    )


def _for_instruction(
    name: str,
    access: Access,
    value: Scalar,
    plan: TilePlan,
    levels: tuple[list[Axis], list[Axis], list[Axis]],
    dtype: DType,
) -> PackedCopy:
    """A copy in which what one instruction takes lies in one row: of the operand with
    the vector's lanes the numbers that each lane sums, beside each other; of the other
    what all of them share. Of a factor in parts it has each part once."""
    outer, inner, registers = levels
    moving = [axis for axis in plan.reduction if axis.axis.name in access.axes]
    packed = {axis.axis.name: _within(axis) for axis in moving}
    indices = {axis.axis.name: axis.index for axis in plan.spatial if axis.axis.name in access.axes}
    indices |= {axis.axis.name: _position(axis, Var(_within(axis).name)) for axis in moving}
    here = {_within(axis).name: axis.within for axis in moving}
    if (parts := plan.instruction.factor_parts) is not None:
        tensor, part = access.read.tensor, replace(packed[parts.axis], extent=2)
        packed[parts.axis] = part
        indices[parts.axis] = parts.product(tensor, Var(part.name))
        here[part.name] = parts.part(tensor, here[part.name])
    steps = [axis for name, axis in packed.items() if name not in plan.instruction.axes]
    instruction = [_within(axis) for axis in moving if axis.axis.name in plan.instruction.axes]
    vectorised = plan.vector in access.axes
    if vectorised:
        *registers, lanes = registers
        *words, numbers = instruction
        kept, row = [*outer, *inner, *steps, *registers, *words], [lanes, numbers]
    else:
        kept, row = [*outer, *inner, *steps, *registers], instruction

    def placed(within: Mapping[str, Scalar]) -> tuple[Scalar, ...]:
        position: Scalar = within.get(row[0].name, Var(row[0].name))
        for axis in row[1:]:
            position = add(times(position, axis.extent), within.get(axis.name, Var(axis.name)))
        return (*(within.get(axis.name, Var(axis.name)) for axis in kept), position)

    body, written, loops = substitute(value, indices), placed({}), [*kept, *row]
    mark: Mark | None = None
    innermost = [name for name in plan.instruction.axes if name in access.axes][-1]
    side_by_side = access.stride(innermost) == 1 and not access.padded
    if (
        vectorised
        and access.stride(str(plan.vector)) == 1
        and not _bordered_along(value, str(plan.vector))
    ):
        mark = Interleave(loop=LoopId.of(name, row[0]))
    elif (
        vectorised
        and side_by_side
        and (words_along := _of_words(access, plan, kept, row[-1].extent)) is not None
    ):
        mark = TransposeWordsInRegisters(
            loop=LoopId.of(name, words_along),
            vector_lanes=1 << (min(words_along.extent, row[0].extent).bit_length() - 1),
        )
        loops = [*(axis for axis in kept if axis != words_along), words_along, *row]
    elif not vectorised and side_by_side:
        # Side by side in the source too: one loop along the row.
        whole = Axis(name=row[-1].name, extent=prod(axis.extent for axis in row))
        body = substitute(body, {axis.name: constant(0) for axis in row[:-1]})
        written, loops = (*written[:-1], Var(whole.name)), [*kept, whole]
        mark = Vectorize(loop=LoopId.of(name, whole))
    block = Block(name=name, axes=tuple(loops), buffer=name, indices=written, body=body)
    shape = (*(axis.extent for axis in kept), prod(axis.extent for axis in row))
    return PackedCopy(
        block=block,
        buffer=Buffer(name=name, shape=shape, dtype=dtype, raw_bits=True),
        read=Read(name, placed(here)),
        levels=tuple(outer),
        marks=() if mark is None else (mark,),
    )


def _of_matrices(
    name: str,
    access: Access,
    value: Scalar,
    plan: TilePlan,
    levels: tuple[list[Axis], list[Axis], list[Axis]],
    dtype: DType,
) -> PackedCopy:
    """A copy in which the matrices of a register tile lie one after another.

    Each has two elements of the axis that its operand brings to the sums, and for each of
    these what one instruction takes of the reduction.
    """
    outer, inner, registers = levels
    along = plan.tiled(str(plan.vector if plan.vector in access.axes else plan.instruction.paired))
    whole = Level.VECTOR_LANE.axis(along.axis.name, along.tile)
    moving = [axis for axis in plan.reduction if axis.axis.name in access.axes]
    steps = [_within(axis) for axis in moving if axis.axis.name not in plan.instruction.axes]
    (numbers,) = (_within(axis) for axis in moving if axis.axis.name in plan.instruction.axes)
    kept = [*outer, *inner, *steps, *(axis for axis in registers if axis not in along.register)]
    indices = {tiled.axis.name: tiled.index for tiled in plan.spatial}
    indices |= {along.axis.name: add(along.base, Var(whole.name))}
    indices |= {axis.axis.name: _position(axis, Var(_within(axis).name)) for axis in moving}
    mark: Mark | None = None
    if (
        access.stride(along.axis.name) == 1
        and whole.extent >= SHORTEST
        and whole.extent & (whole.extent - 1) == 0
        and not _bordered_along(value, along.axis.name)
    ):
        mark = Interleave(loop=LoopId.of(name, whole))
    elif access.stride(plan.instruction.axes[0]) == 1 and not access.padded:
        mark = Vectorize(loop=LoopId.of(name, numbers))

    def placed(element: Scalar, within: Mapping[str, Scalar]) -> tuple[Scalar, ...]:
        *here, number = (within.get(axis.name, Var(axis.name)) for axis in (*kept, numbers))
        return (*here, add(times(element, numbers.extent), number))

    return PackedCopy(
        block=Block(
            name=name,
            axes=(*kept, whole, numbers),
            buffer=name,
            indices=placed(Var(whole.name), {}),
            body=substitute(value, indices),
        ),
        buffer=Buffer(
            name=name,
            shape=(*(axis.extent for axis in kept), whole.extent * numbers.extent),
            dtype=dtype,
            raw_bits=True,
        ),
        read=Read(name, placed(along.offset, {_within(axis).name: axis.within for axis in moving})),
        levels=tuple(outer),
        marks=() if mark is None else (mark,),
    )


def _of_words(access: Access, plan: TilePlan, kept: list[Axis], numbers: int) -> Axis | None:
    """The iterator along which the words of `numbers` that one lane sums lie side by
    side in memory, long enough to be loaded as vectors: of those that one instruction
    takes, or of the steps between instructions."""
    words = [_within(axis) for axis in plan.reduction if access.stride(axis.axis.name) == numbers]
    return next((axis for axis in words if axis in kept and axis.extent >= SHORTEST), None)


def _bordered_along(value: Scalar, axis: str) -> bool:
    """Whether what is copied leaves its tensor at some places along the axis and not at others."""
    return isinstance(value, Select) and any(
        isinstance(node, Var) and node.name == axis for node in walk(value.cond)
    )


def contiguous_across(access: Access, plan: TilePlan) -> Axis | None:
    """The iterator along which vectors of a read can be loaded whose lanes, or rows,
    lie apart; None where there is none."""
    if plan.vector is None or access.padded:
        return None
    lanes = plan.tiled(plan.vector).lanes
    vectorised = plan.vector in access.axes
    apart = (
        access.stride(plan.vector) not in (0, 1, None) if vectorised else _has_rows(access, plan)
    )
    if lanes < SHORTEST or not apart:
        return None
    for axis in plan.reduction:
        if access.stride(axis.axis.name) == 1 and axis.block >= SHORTEST:
            return _within(axis)
    for tiled in plan.spatial:
        if (
            vectorised
            and access.stride(tiled.axis.name) == 1
            and tiled.lanes == lanes
            and tiled.axis.name != plan.vector
        ):
            return tiled.register[-1]
    return None


def _has_rows(access: Access, plan: TilePlan) -> bool:
    """Whether a register tile has several rows of an operand."""
    return any(tiled.tile > 1 for tiled in plan.spatial if tiled.axis.name in access.axes)


def _within(axis: ReductionAxis) -> Axis:
    return Level.PACKED.axis(axis.axis.name, axis.block)


def _position(axis: ReductionAxis, within: Scalar) -> Scalar:
    return add(times(Var(axis.outer.name), axis.block), within) if axis.blocked else within
