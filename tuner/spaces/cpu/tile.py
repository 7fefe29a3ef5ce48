"""The tile sketch for CPUs: register tiles in cache blocks, operands packed or padded
where wanted, results written once.

Nest of a reduction, outermost first: cache blocks of each spatial axis, reduction
blocks, register tiles within a block, the reduction, and the unrolled register tile
whose accumulators live in registers. Goto & van de Geijn, "Anatomy of High-Performance
Matrix Multiplication" (2008) gives the reason for each level; here it is made of any
stage, not only of a matrix product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.packing import PackedCopy, packed_copy
from tuner.spaces.cpu.prefetch import of_map, of_sum
from tuner.spaces.cpu.tile_plan import ReductionAxis, TilePlan
from tuner.spaces.cpu.zero_point import iterators, moved
from tuner.spaces.program.loops import Level, LoopId, loops_of
from tuner.spaces.program.marks import (
    AmxParts,
    AmxTile,
    DotProduct,
    NoUnroll,
    Unroll,
    Vectorize,
)
from tuner.spaces.program.nest import Nest, parallel_prefix
from tuner.spaces.program.program import (
    Block,
    Buffer,
    ComputeAt,
    DecomposeReduction,
    Fuse,
    Prefetch,
    Reorder,
    ReverseComputeAt,
    Step,
)
from tuner.spaces.program.tiles import add, constant
from tuner.spaces.rewrite.access import Access, accesses, bounds, in_bounds, unpadded
from tuner.spaces.rewrite.dead_code import outside
from tuner.spaces.rewrite.groups import TileGroup, replace_reads
from tuner.spaces.rewrite.liveness import in_tile
from tuner.spaces.rewrite.predicates import guarded
from tuner.spaces.rewrite.stages import costs_mathematics
from tuner.workload.expression import (
    Axis,
    Binary,
    Const,
    DType,
    Read,
    Scalar,
    Select,
    Var,
    reads,
    rewrite,
    substitute,
)

FEWEST_ROLLED = (
    16  # iterations of a loop that the compiler is not to unroll; straight code of fewer often pays
)


class TileNest:
    """Builds the blocks and steps of one tile group under one plan."""

    def __init__(
        self,
        group: TileGroup,
        plan: TilePlan,
        shapes: Mapping[str, tuple[int, ...]],
        dtypes: Mapping[str, DType],
    ) -> None:
        self.group, self.plan, self.shapes, self.dtypes = group, plan, shapes, dtypes
        self.name = group.name
        self.blocks: list[Block] = []
        self.buffers: list[Buffer] = []
        self.steps: list[Step] = []
        self.padded_parts: list[
            tuple[str, Axis]
        ] = []  # copies made a part at a time, and the loop they stand under
        self.offset: Block | None = None  # sums of what an offset adds
        self.indices = {axis.axis.name: axis.index for axis in plan.spatial} | {
            axis.axis.name: axis.index for axis in plan.reduction
        }

    # Loops of each level, by name without the block.

    @property
    def outer(self) -> list[Axis]:
        return [self.plan.tiled(name).outer for name in self.plan.outer_order]

    @property
    def inner(self) -> list[Axis]:
        return [self.plan.tiled(name).inner for name in self.plan.inner_order]

    @property
    def register(self) -> list[Axis]:
        """Unrolled iterators, the vector's lanes last."""
        plain = [
            axis
            for tiled in self.plan.spatial
            if tiled.axis.name != self.plan.vector
            for axis in tiled.register
        ]
        return (
            plain
            if self.plan.vector is None
            else [*plain, *self.plan.tiled(self.plan.vector).register]
        )

    @property
    def _vector_lane(self) -> str:
        """The name of the vectorised axis' lanes; that of no axis where none is vectorised."""
        return Level.VECTOR_LANE.name_of(self.plan.vector or "")

    @property
    def reduction(self) -> list[Axis]:
        steps = [axis for axis in self.plan.reduction if axis.axis.name not in self.plan.taken]
        return [axis.inner for axis in steps] + [axis.unrolled for axis in steps if axis.unroll > 1]

    @property
    def taken(self) -> list[Axis]:
        """What one instruction takes at once: below the lanes."""
        return [axis.inner for axis in self.plan.reduction if axis.axis.name in self.plan.taken]

    def build(self) -> Nest:
        if self.group.anchor.reducer is None:
            self._map()
        else:
            self._reduce()
        return Nest(tuple(self.blocks), tuple(self.buffers), tuple(self.steps))

    # --- pieces
    # ------------------------------------------------------------------------------

    def _map(self) -> None:
        """A stage without a reduction: the output's tiles straight from its reads, or a
        constant where they see padding alone."""
        spatial = [*self.outer, *self.inner, *self.register]
        attached: list[PackedCopy] = []
        body = substitute(self._copied(attached), self.indices)
        # TVM has no stores of one bfloat16 value to all lanes.
        found = (
            None
            if self.group.anchor.dtype == "bfloat16"
            else outside(self.group.anchor, self.shapes)
        )
        conditions, otherwise = found or ((), None)
        when = tuple(in_tile(condition, self.indices, self.register) for condition in conditions)
        wide = self._wide(body)
        written = Read(self.name, tuple(Var(axis.name) for axis in self.group.output.axes))
        joined = wide and self._joined()
        ahead = (
            of_map(self.plan, self.group.anchor, written, self.shapes, self.dtypes, wide=joined)
            if self.plan.ahead
            else ()
        )
        self._block(
            self.name,
            spatial,
            (),
            self.name,
            self._output_indices(),
            body,
            when,
            otherwise,
            ahead,
            self.plan.streamed,
        )
        self.steps.append(Reorder(loops=loops_of(self.name, spatial)))
        for copy in reversed(attached):
            self.buffers = [
                replace(buffer, scope="stack") if buffer == copy.buffer else buffer
                for buffer in self.buffers
            ]
            self.steps.append(
                ComputeAt(block=copy.block.name, loop=LoopId.of(self.name, self.inner[-1]))
            )
            for axis in copy.block.axes:
                if (
                    axis in self.register[:-1]
                    and axis.extent > 1
                    and not Level.VECTOR_LANE.holds(axis.name)
                ):
                    self.steps.append(Unroll(loop=LoopId.of(copy.block.name, axis)))
            self.steps += copy.marks
        self._innermost(self.name, wide=wide)
        self._threads(self.name, self.outer, keep=[])

    def _reduce(self) -> None:
        plan, anchor = self.plan, self.group.anchor
        spatial = [*self.outer, *self.inner, *self.register]
        blocked = plan.blocked
        acc, part = f"{self.name}_acc", f"{self.name}_part"
        host = acc
        attached: list[PackedCopy] = []
        body = substitute(self._copied(attached), self.indices)
        shape = tuple(axis.extent for axis in spatial)
        here: tuple[Scalar, ...] = tuple(Var(axis.name) for axis in spatial)
        dtype = anchor.accumulator
        when: tuple[Scalar, ...] = ()
        assert anchor.reducer is not None
        if not plan.taken:
            when, body = guarded(body, anchor.reducer, dtype, {self._vector_lane})
            when = (*self._needed(), *when)
        if plan.offset:
            body = self._offset(body)
        blocks = [blocked.outer] if blocked is not None else []
        plain = [axis for axis in self.register if axis.name != self._vector_lane]
        ahead = (
            of_sum(
                plan, anchor, [*self.outer, *blocks], self.inner, plain, self.shapes, self.dtypes
            )
            if plan.ahead
            else ()
        )
        accumulating = acc
        out_at = self.outer[-1] if blocks else (self.inner or self.outer)[-1]
        if blocked is None and not plan.offset:
            self.buffers.append(Buffer(name=acc, shape=shape, dtype=dtype, scope="stack"))
            self._block(
                acc,
                spatial,
                [*self.reduction, *self.taken],
                acc,
                here,
                body,
                when,
                prefetches=ahead,
            )
            order = [*self.outer, *self.inner, *self.reduction, *self.register, *self.taken]
            self.steps.append(Reorder(loops=loops_of(acc, order)))
        elif plan.rows is not None:
            # Matrix registers are loaded from memory and stored there: they add to what
            # the block before has left.
            self.buffers.append(Buffer(name=acc, shape=shape, dtype=dtype))
            self._block(acc, spatial, [*blocks, *self.reduction, *self.taken], acc, here, body)
            order = [
                *self.outer,
                *blocks,
                *self.inner,
                *self.reduction,
                *self.register,
                *self.taken,
            ]
            self.steps.append(Reorder(loops=loops_of(acc, order)))
        else:
            accumulating = part
            sizes = tuple(axis.extent for axis in blocks)
            self.buffers.append(
                Buffer(name=part, shape=(*sizes, *shape), dtype=dtype, scope="stack")
            )
            self.buffers.append(
                Buffer(name=acc, shape=shape, dtype=dtype, scope="global" if blocks else "stack")
            )
            partial = (*(Var(axis.name) for axis in blocks), *here)
            self._block(
                part,
                [*blocks, *spatial],
                [*self.reduction, *self.taken],
                part,
                partial,
                body,
                when,
                prefetches=ahead,
            )
            self._block(acc, spatial, blocks, acc, here, self._without_offset(Read(part, partial)))
            self.steps.append(
                Reorder(loops=loops_of(acc, [*self.outer, *blocks, *self.inner, *self.register]))
            )
            self.steps.append(ComputeAt(block=part, loop=LoopId.of(acc, self.inner[-1])))
            self.steps.append(
                Reorder(loops=loops_of(part, [*self.reduction, *self.register, *self.taken]))
            )
        self._write_back(acc, here, out_at, spatial)
        self._place_packs(host, attached, blocked)
        self.steps += [
            ComputeAt(block=name, loop=LoopId.of(host, level)) for name, level in self.padded_parts
        ]
        for axis in plan.reduction:
            if axis.unroll > 1:
                self.steps.append(Unroll(loop=LoopId.of(accumulating, axis.unrolled)))
        if plan.vector is not None and plan.rows is None:
            rolled = [axis.inner for axis in plan.reduction if axis.inner.extent >= FEWEST_ROLLED]
            self.steps += [NoUnroll(loop=LoopId.of(accumulating, axis)) for axis in rolled]
        for block in dict.fromkeys((accumulating, acc)):
            if block == accumulating and plan.rows is not None:
                self.steps.append(self._in_registers(block))
                parts = [axis.inner for axis in plan.reduction if axis.axis.name == plan.parts]
                self.steps += [AmxParts(loop=loop) for loop in loops_of(block, parts)]
            else:
                self._innermost(block, dot=bool(self.taken) and block == accumulating)
        copied = [axis for copy in attached for axis in copy.levels] + [
            level for _, level in self.padded_parts
        ]
        self._threads(acc, self.outer, keep=copied)
        # Initialisation is split off above the reduction, so that the loop itself only
        # accumulates; last, because TVM marks no loop of a reduction that has lost its
        # initialisation.
        sums = {accumulating: self.reduction[0]} | (
            {acc: blocked.outer} if blocked is not None else {}
        )
        for block, first in sums.items():
            self.steps.append(DecomposeReduction(block=block, loop=LoopId.of(block, first)))
            self._innermost(block, initial=True)
        if self.offset is not None:
            name = self.offset.name
            self.steps.append(
                DecomposeReduction(block=name, loop=LoopId.of(name, self.reduction[0]))
            )
            self.steps.append(Vectorize(loop=LoopId.of(name, self.register[-1], initial=True)))

    def _write_back(
        self, acc: str, here: tuple[Scalar, ...], at: Axis, spatial: list[Axis]
    ) -> None:
        """The block that reads finished accumulators and stores the group's output,
        epilogue included."""
        output = self.group.output
        finished = Read(acc, here)
        costly = self.group.epilogue is not None and costs_mathematics(self.group.epilogue.body)
        if costly and self.plan.blocked is None:
            # Unrolled, a long epilogue takes the compiler seconds; accumulators go to
            # memory once, so that it can be a loop.
            held = f"{self.name}_tile"
            shape = tuple(axis.extent for axis in spatial)
            self.buffers.append(Buffer(name=held, shape=shape, dtype=self.group.anchor.accumulator))
            self._block(held, spatial, (), held, here, finished)
            self.steps.append(ReverseComputeAt(block=held, loop=LoopId.of(acc, at)))
            self.steps.append(Reorder(loops=loops_of(held, [*self.inner, *self.register])))
            self._innermost(held)
            finished = Read(held, here)
        if self.group.epilogue is None:
            body: Scalar = finished
        else:
            plain = unpadded(
                self.group.epilogue.body,
                self.shapes,
                {axis.axis.name: axis.axis.extent for axis in self.plan.spatial},
            )
            body = replace_reads(
                substitute(plain, self.indices), {self.group.anchor.name: finished}
            )
        self._block(
            output.name,
            spatial,
            (),
            output.name,
            self._output_indices(),
            body,
            non_temporal=self.plan.streamed,
        )
        self.steps.append(ReverseComputeAt(block=output.name, loop=LoopId.of(acc, at)))
        self.steps.append(Reorder(loops=loops_of(output.name, [*self.inner, *self.register])))
        self._innermost(
            output.name, unrolled=not costly and self.plan.rows is None, wide=self._wide(body)
        )

    def _needed(self) -> list[Scalar]:
        """Conditions under which any term matters of those that the unrolled body adds."""
        tile = [*self.register, *(axis.unrolled for axis in self.plan.reduction)]
        return [in_tile(condition, self.indices, tile) for condition in self.group.needed]

    def _output_indices(self) -> tuple[Scalar, ...]:
        return tuple(self.indices[axis.name] for axis in self.group.output.axes)

    def _copied(self, attached: list[PackedCopy]) -> Scalar:
        """The anchor's body with padding made explicit and reads redirected to their
        copies, in the original iterators.

        Reads of packed copies come back in the new iterators, which no substitution touches.
        """
        anchor = self.group.anchor
        extents = anchor.extents
        changes: dict[Read, Scalar] = {}
        for number, found in enumerate(accesses(anchor, self.shapes)):
            mode = self.plan.copies.get(found.read, CopyMode.NONE)
            if mode in {CopyMode.PAD, CopyMode.PAD_PARTS}:
                parts = mode is CopyMode.PAD_PARTS
                changes[found.read] = self._pad(found, extents, number, parts=parts)
            elif mode in {CopyMode.PACK, CopyMode.PACK_ROOT}:
                copy = self._pack(found, extents, number)
                changes[found.read] = copy.read
                if mode is CopyMode.PACK:
                    attached.append(copy)
                else:
                    self.steps += copy.marks
                    self._threads(copy.block.name, list(copy.levels), keep=[])
        from_copies = _replace(anchor.body, changes)
        return unpadded(from_copies, self.shapes, extents)

    def _pad(
        self, found: Access, extents: Mapping[str, int], number: int, *, parts: bool
    ) -> Scalar:
        """A copy of the tensor as wide as its reads reach, the padding filled in; or of
        each part by itself."""
        read = found.read
        assert read.pad is not None
        reach = []
        for index in read.indices:
            ends = bounds(index, extents)
            assert ends is not None, f"who knows where {read} reads"
            reach.append(ends)
        name = f"{self.name}_pad{number}"
        shape = tuple(high - low + 1 for low, high in reach)
        axes = [Axis(name=f"p{dimension}", extent=extent) for dimension, extent in enumerate(shape)]
        source = tuple(
            add(Var(axis.name), constant(low)) for axis, (low, _) in zip(axes, reach, strict=True)
        )
        inside = in_bounds(
            source, self.shapes[read.tensor], {axis.name: axis.extent for axis in axes}
        )
        plain = Read(read.tensor, source)
        self.buffers.append(
            Buffer(
                name=name,
                shape=shape,
                dtype=self.dtypes[read.tensor],
                raw_bits=bool(self.plan.taken),
            )
        )
        self._block(
            name,
            axes,
            (),
            name,
            tuple(Var(axis.name) for axis in axes),
            plain if inside is None else Select(inside, plain, read.pad),
        )
        level = self._part_level(found) if parts else None
        if level is None:
            self._threads(name, axes[:-1], keep=[])
        else:
            self.padded_parts.append((name, level))
        self.shapes = {**self.shapes, name: shape}
        self.dtypes = {**self.dtypes, name: self.dtypes[read.tensor]}
        return Read(
            name,
            tuple(
                add(index, constant(-low))
                for index, (low, _) in zip(read.indices, reach, strict=True)
            ),
        )

    def _part_level(self, found: Access) -> Axis | None:
        """The innermost of the outermost loops whose turns read parts of a tensor that
        have nothing in common."""
        level = None
        for axis in self.plan.outer_order:
            loop = self.plan.tiled(axis).outer
            if loop.extent == 1:
                continue
            if not found.divides(axis):
                break
            level = loop
        return level

    def _pack(self, found: Access, extents: Mapping[str, int], number: int) -> PackedCopy:
        """A copy in the order in which the nest reads it, so that the innermost loops
        walk it from end to end.

        A read under a condition of the stage may be out of bounds where that fails; the
        copy does not know it.
        """
        read, dtype = found.read, self.dtypes[found.read.tensor]
        value = unpadded(
            read if read.pad is not None else replace(read, pad=Const(0, dtype)),
            self.shapes,
            extents,
        )
        copy = packed_copy(f"{self.name}_pack{number}", found, value, self.plan, dtype)
        self.buffers.append(copy.buffer)
        self.blocks.append(copy.block)
        return copy

    def _place_packs(
        self, host: str, attached: list[PackedCopy], blocked: ReductionAxis | None
    ) -> None:
        """Each packed copy goes under the innermost cache-block loop it depends on."""
        levels = [*self.outer, *([blocked.outer] if blocked is not None else [])]
        level_of: dict[str, Axis] = {}
        for copy in attached:
            depends = [axis for axis in levels if axis in copy.levels and axis.extent > 1]
            if depends:
                level_of[copy.block.name] = depends[-1]
        if self.offset is not None:
            self._place_offset(self.offset, host, level_of)
        for copy in reversed(attached):
            if copy.block.name in level_of:
                self.steps.append(
                    ComputeAt(
                        block=copy.block.name, loop=LoopId.of(host, level_of[copy.block.name])
                    )
                )
            self.steps += copy.marks

    # --- an offset of one factor
    # ------------------------------------------------------------------------------

    def _offset(self, body: Scalar) -> Scalar:
        """The body with the plan's offset added to one factor, and a block of the sums
        of what that adds."""
        body, added = moved(body, self._vector_lane, self.plan.offset)
        blocked = [self.plan.blocked.outer] if self.plan.blocked is not None else []
        moving = iterators(added)
        axes = [
            axis
            for axis in (*blocked, *self.outer, *self.inner, *self.register)
            if axis.name in moving
        ]
        name = f"{self.name}_offset"
        self.buffers.append(
            Buffer(
                name=name,
                shape=tuple(axis.extent for axis in axes),
                dtype=self.group.anchor.accumulator,
            )
        )
        reduction = [*self.reduction, *self.taken]
        self._block(name, axes, reduction, name, tuple(Var(axis.name) for axis in axes), added)
        self.offset = self.blocks[-1]
        return body

    def _without_offset(self, total: Scalar) -> Scalar:
        return (
            total
            if self.offset is None
            else Binary("sub", total, Read(self.offset.buffer, self.offset.indices))
        )

    def _place_offset(self, block: Block, host: str, level_of: Mapping[str, Axis]) -> None:
        """Beside the packed copy that it sums."""
        (copy,) = {read.tensor for read in reads(block.body)}
        name = block.name
        register = [axis for axis in self.register if axis in block.axes]
        outside = [axis for axis in block.axes if axis not in register]
        if copy in level_of:
            self.steps.append(ComputeAt(block=name, loop=LoopId.of(host, level_of[copy])))
        self.steps.append(
            Reorder(loops=loops_of(name, [*outside, *self.reduction, *register, *self.taken]))
        )
        for axis in register[:-1]:
            self.steps.append(Unroll(loop=LoopId.of(name, axis)))
        self.steps.append(DotProduct(loop=LoopId.of(name, register[-1])))
        if copy not in level_of:
            self._threads(name, outside, keep=[])

    # --- small things
    # ------------------------------------------------------------------------------

    def _block(
        self,
        name: str,
        axes: list[Axis],
        reduce_axes: list[Axis] | tuple[()],
        buffer: str,
        indices: tuple[Scalar, ...],
        body: Scalar,
        when: tuple[Scalar, ...] = (),
        otherwise: Scalar | None = None,
        prefetches: tuple[Prefetch, ...] = (),
        non_temporal: bool = False,
    ) -> None:
        reducer = self.group.anchor.reducer if reduce_axes else None
        self.blocks.append(
            Block(
                name=name,
                axes=tuple(axes),
                reduce_axes=tuple(reduce_axes),
                buffer=buffer,
                indices=indices,
                body=body,
                reducer=reducer,
                when=when,
                otherwise=otherwise,
                prefetches=prefetches,
                non_temporal=non_temporal,
                math_functions=self.plan.mathematics,
            )
        )

    def _in_registers(self, block: str) -> AmxTile:
        """The loops that matrix registers replace: the outermost step of the reduction,
        and those of a step."""
        assert self.plan.rows is not None and self.plan.vector is not None
        vectors, vector_lanes = self.plan.tiled(self.plan.vector).register
        words, elements = self.taken
        return AmxTile(
            loop=LoopId.of(block, self.reduction[0]),
            rows=LoopId.of(block, self.plan.tiled(self.plan.rows).register[0]),
            vectors=LoopId.of(block, vectors),
            vector_lanes=LoopId.of(block, vector_lanes),
            words=LoopId.of(block, words),
            elements=LoopId.of(block, elements),
        )

    def _innermost(
        self,
        block: str,
        *,
        unrolled: bool = True,
        dot: bool = False,
        wide: bool = False,
        initial: bool = False,
    ) -> None:
        """Unrolls the register tile and vectorises its lanes, or gives lanes and what
        each sums to one instruction.

        `wide`: vectors side by side become one, where the compiler can halve it down to
        registers. It computes these by turns, which hides the latency of a long chain,
        and loads each constant once for all.
        """
        register = self.register
        if wide and self._joined():
            side_by_side = loops_of(block, register[-2:])
            whole = LoopId(block, Level.VECTOR.name_of(str(self.plan.vector)))
            self.steps += [Fuse(loops=side_by_side, into=whole), Vectorize(loop=whole)]
            register = register[:-2]
        for axis in register:
            loop = LoopId.of(block, axis, initial=initial)
            lanes = axis.name == self._vector_lane
            if lanes and dot:
                self.steps.append(DotProduct(loop=loop))
            elif lanes or (unrolled and axis.extent > 1):
                self.steps.append(Vectorize(loop=loop) if lanes else Unroll(loop=loop))

    def _joined(self) -> bool:
        """Whether a tile has vectors side by side that can become one."""
        register = self.register
        return register[-1].name == self._vector_lane and register[-2].extent in (2, 4)

    def _wide(self, body: Scalar) -> bool:
        """Whether what is written takes chains of arithmetic in vectors: polynomials of float32."""
        return (
            self.plan.mathematics == "polynomial"
            and self.group.output.dtype == "float32"
            and costs_mathematics(body)
        )

    def _threads(self, block: str, axes: list[Axis], keep: list[Axis]) -> None:
        self.steps += parallel_prefix(block, axes, self.plan.threads, keep)


def _replace(node: Scalar, changes: Mapping[Read, Scalar]) -> Scalar:
    return rewrite(node, lambda found: changes.get(found) if isinstance(found, Read) else None)
