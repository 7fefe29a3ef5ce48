"""Copies of what a tile nest reads: with padding made real, or in the order of reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.nest_parts import NestParts
from tuner.spaces.cpu.packing import PackedCopy, packed_copy
from tuner.spaces.cpu.tile_loops import TileLoops
from tuner.spaces.cpu.tile_plan import TilePlan
from tuner.spaces.program.loops import Level, LoopId
from tuner.spaces.program.marks import Unroll
from tuner.spaces.program.program import Buffer, ComputeAt
from tuner.spaces.program.tiles import add, constant
from tuner.spaces.rewrite.access import Access, accesses, in_bounds_condition, with_explicit_padding
from tuner.spaces.rewrite.groups import TileGroup
from tuner.workload.affine import value_range
from tuner.workload.dtypes import DType
from tuner.workload.expression import Axis, Cast, Const, Read, Scalar, Select, Var, rewrite


class TileCopies:
    """The copies of what a group's anchor reads under one plan, added to the parts of its nest."""

    def __init__(
        self,
        group: TileGroup,
        plan: TilePlan,
        parts: NestParts,
        shapes: Mapping[str, tuple[int, ...]],
        dtypes: Mapping[str, DType],
    ) -> None:
        self.shapes, self.dtypes = shapes, dtypes  # of all tensors, padded copies included
        self._name, self._stage, self._plan, self._parts = group.name, group.anchor, plan, parts
        self._loops = TileLoops(plan)
        self._packed: list[PackedCopy] = []  # those made where they are used
        self.whole: list[tuple[Access, PackedCopy]] = []  # those of whole operands
        self._padded_parts: list[tuple[str, Axis]] = []  # copies, and the loop they belong under

    def add(self) -> Scalar:
        """Adds all copies, and returns the stage's body with its reads redirected to them.

        Padding is explicit in it. It is in the stage's iterators, but for reads of
        packed copies: these are in the nest's, which no substitution touches.
        """
        stage = self._stage
        replacements: dict[Read, Scalar] = {}
        for number, access in enumerate(accesses(stage, self.shapes)):
            mode = self._plan.copies.get(access.read, CopyMode.NONE)
            if mode in {CopyMode.PAD, CopyMode.PAD_PARTS}:
                in_parts = mode is CopyMode.PAD_PARTS
                replacements[access.read] = self._pad(access, number, in_parts=in_parts)
            elif mode in {CopyMode.PACK, CopyMode.PACK_ROOT}:
                copy = self._pack(access, number)
                replacements[access.read] = copy.read
                if mode is CopyMode.PACK:
                    self._packed.append(copy)
                else:
                    self.whole.append((access, copy))
                    self._parts.steps += copy.marks
                    self._parts.share_loops(copy.block.name, copy.levels)
        return with_explicit_padding(
            _redirect(stage.body, replacements), self.shapes, stage.extents
        )

    def _pad(self, access: Access, number: int, *, in_parts: bool) -> Scalar:
        """A copy as wide as the reads reach, with its padding filled in.

        `in_parts` makes it one part at a time, where the reads allow it.
        """
        read = access.read
        assert read.pad is not None
        name = f"{self._name}_pad{number}"
        reach = [value_range(index, self._stage.extents) for index in read.indices]
        shape = tuple(span.high - span.low + 1 for span in reach)
        axes = [Axis(name=f"p{dimension}", extent=extent) for dimension, extent in enumerate(shape)]
        source = tuple(
            add(Var(axis.name), constant(span.low)) for axis, span in zip(axes, reach, strict=True)
        )
        inside = in_bounds_condition(
            source, self.shapes[read.tensor], {axis.name: axis.extent for axis in axes}
        )
        value: Scalar = Read(read.tensor, source)
        if inside is not None:
            value = Select(inside, value, read.pad)
        dtype = self.dtypes[read.tensor]
        raw_bits = bool(self._plan.instruction.axes)
        self._parts.buffers.append(Buffer(name=name, shape=shape, dtype=dtype, raw_bits=raw_bits))
        self._parts.compute(name, axes, [Var(axis.name) for axis in axes], value)
        level = self._part_level(access) if in_parts else None
        if level is None:
            self._parts.share_loops(name, axes[:-1])
        else:
            self._padded_parts.append((name, level))
        self.shapes = {**self.shapes, name: shape}
        self.dtypes = {**self.dtypes, name: dtype}
        shifted = (
            add(index, constant(-span.low)) for index, span in zip(read.indices, reach, strict=True)
        )
        return Read(name, tuple(shifted))

    def _part_level(self, access: Access) -> Axis | None:
        """The innermost of the outermost loops whose iterations read disjoint parts of a tensor."""
        level = None
        for axis in self._plan.outer_order:
            loop = self._plan.tiled(axis).outer
            if loop.extent == 1:
                continue
            if not access.divides(axis):
                break
            level = loop
        return level

    def _pack(self, access: Access, number: int) -> PackedCopy:
        """A copy in the order in which the nest reads it: the innermost loops walk it end to end.

        A read under a condition of the stage may be out of bounds where that fails. The
        copy does not know the condition, and copies zeros there.
        """
        read, dtype = access.read, self.dtypes[access.read.tensor]
        padded = read if read.pad is not None else replace(read, pad=Const(0, dtype))
        value = with_explicit_padding(padded, self.shapes, self._stage.extents)
        if (packed_dtype := self._plan.instruction.packed_dtype) is not None:
            dtype, value = packed_dtype, Cast(packed_dtype, value)
        copy = packed_copy(f"{self._name}_pack{number}", access, value, self._plan, dtype)
        self._parts.buffers.append(copy.buffer)
        self._parts.blocks.append(copy.block)
        return copy

    # --- where they stand

    @property
    def levels(self) -> list[Axis]:
        """Loops that copies stand under, so that threads must not fuse across them."""
        packed = [axis for copy in self._packed for axis in copy.levels]
        return packed + [level for _, level in self._padded_parts]

    def packed_levels(self) -> dict[str, Axis]:
        """For each packed copy the innermost cache-block loop that it depends on, if any."""
        loops = [*self._loops.outer, *self._loops.reduction_blocks]
        levels = {}
        for copy in self._packed:
            depends = [axis for axis in loops if axis in copy.levels and axis.extent > 1]
            if depends:
                levels[copy.block.name] = depends[-1]
        return levels

    def place(self, host: str) -> None:
        """Puts each copy of a sum under the loop of the host that it depends on."""
        levels, steps = self.packed_levels(), self._parts.steps
        for copy in reversed(self._packed):
            name = copy.block.name
            if name in levels:
                steps.append(ComputeAt(block=name, loop=LoopId.of(host, levels[name])))
            steps += copy.marks
        steps += [
            ComputeAt(block=name, loop=LoopId.of(host, level)) for name, level in self._padded_parts
        ]

    def place_in_tile(self, host: str) -> None:
        """Puts each packed copy of a map into the register tile, in registers."""
        parts, innermost = self._parts, self._loops.inner[-1]
        for copy in reversed(self._packed):
            parts.buffers = [
                replace(buffer, scope="stack") if buffer == copy.buffer else buffer
                for buffer in parts.buffers
            ]
            name = copy.block.name
            parts.steps.append(ComputeAt(block=name, loop=LoopId.of(host, innermost)))
            parts.steps += [
                Unroll(loop=LoopId.of(name, axis))
                for axis in copy.block.axes
                if axis in self._loops.register[:-1]
                and axis.extent > 1
                and not Level.VECTOR_LANE.holds(axis.name)
            ]
            parts.steps += copy.marks


def _redirect(body: Scalar, replacements: Mapping[Read, Scalar]) -> Scalar:
    return rewrite(body, lambda node: replacements.get(node) if isinstance(node, Read) else None)
