"""The row sketch for GPUs: several threads to a row, reductions along the column across
them, stages along the row fused.

threadIdx.x runs along the column and threadIdx.y along the rows of a block. A
reduction's loop over threads stays a reduction loop bound to threadIdx.x: TVM lowers it
to shuffles within a warp and shared memory between warps. What several stages read is
loaded once and kept in registers or in shared memory.

Loads and stores of several lanes are vectors whatever is computed between them: where a
body is computed lane by lane, what it reads comes through a vector of registers, and
its results are stored from one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.cuda.axes import GridAxis
from tuner.spaces.cuda.block_shapes import RowShape, RowStorage
from tuner.spaces.program.loops import Level, LoopId, loops_of
from tuner.spaces.program.marks import Unroll, Vectorize
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import Bind, Block, Buffer, ComputeAt, Fuse, Reorder, Step
from tuner.spaces.program.tiles import add, at_most, times
from tuner.spaces.rewrite.access import with_explicit_padding
from tuner.spaces.rewrite.groups import COLUMN, RowGroup, replace_reads
from tuner.spaces.rewrite.stages import inline_into, is_expensive
from tuner.target.cuda import VECTOR_BYTES
from tuner.workload.affine import linear
from tuner.workload.dtypes import DTYPE_BYTES, DType
from tuner.workload.expression import (
    Axis,
    Binary,
    Cast,
    Read,
    Scalar,
    Select,
    Stage,
    Var,
    reads,
    rewrite,
    substitute,
    walk,
)
from tuner.workload.scalar_operators import identity

# Steps along the column that are unrolled where nothing kept in registers demands it.
MAX_UNROLLED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaRowPlan:
    """A config of the sketch, decoded."""

    rows: tuple[GridAxis, ...]  # threads along at most one of them
    column: Axis
    shape: RowShape  # its width is at most the column

    @property
    def steps(self) -> int:
        """Iterations of each thread along the column."""
        return -(-self.column.extent // self.shape.width)


class CudaRowNest:
    """Builds the blocks and steps of one row group under one plan."""

    def __init__(self, group: RowGroup, plan: CudaRowPlan, context: SpaceContext) -> None:
        self.plan, self.shape, self.storage = plan, plan.shape, plan.shape.storage
        self.shapes, self.dtypes = context.shapes, context.dtypes
        recomputes = self.storage is RowStorage.RECOMPUTED
        self.stages = recomputed(group) if recomputes else group.stages
        self.name = group.name
        self.blocks: list[Block] = []
        self.buffers: list[Buffer] = []
        self.steps: list[Step] = []
        self.grid = [part.outer for part in plan.rows]
        self.spatial = [*self.grid, *(part.thread for part in plan.rows)]
        self.row: tuple[Scalar, ...] = tuple(Var(axis.name) for axis in self.spatial)
        self.row_indices: dict[str, Scalar] = {part.axis.name: part.index for part in plan.rows}
        # The loops along the column: steps, threads, lanes.
        self.along = (
            Level.STEP.axis(COLUMN, plan.steps),
            Level.THREAD.axis(COLUMN, self.shape.threads),
            Level.VECTOR_LANE.axis(COLUMN, self.shape.lanes),
        )
        self.finished: dict[str, Scalar] = {}  # value of each stage that has one a row
        self.kept: dict[Read, Scalar] = {}  # what is read in place of a kept stage or row
        # The loop that a block is placed under, if not the host's innermost loop of rows.
        self.under: dict[str, LoopId] = {}
        self.preloads: set[str] = set()  # blocks placed before all others of their loop

    def build(self) -> Nest:
        if self.storage is not RowStorage.RECOMPUTED:
            for number, read in enumerate(rows_read_again(self.stages)):
                self._keep(f"{self.name}_load{number}", read, self.dtypes[read.tensor], read)
        for stage in self.stages[:-1]:
            if stage.reducer is not None:
                self.finished[stage.name] = self._reduction(stage)
            elif len(stage.axes) > len(self.stages[0].axes):
                self._keep(stage.name, stage.body, stage.dtype, _own_element(stage))
            else:
                self._add(stage.name, self.spatial, self._value(stage.body), stage.dtype, "local")
                self.finished[stage.name] = Read(stage.name, self.row)
        self._host(self.stages[-1])
        self._place()
        return Nest(tuple(self.blocks), tuple(self.buffers), tuple(self.steps))

    # --- stages

    @property
    def _step(self) -> Scalar:
        """The first element of the current step."""
        return times(Var(self.along[0].name), self.shape.width)

    @property
    def _column(self) -> Scalar:
        """The element of the column; the last step is moved back where steps do not divide it."""
        extent, width = self.plan.column.extent, self.shape.width
        first = at_most(self._step, extent - width) if extent % width else self._step
        _, thread, lane = self.along
        return add(first, add(times(Var(thread.name), self.shape.lanes), Var(lane.name)))

    def _reduction(self, stage: Stage) -> Scalar:
        """One block over the row's own part and across threads; elements that an
        earlier step has seen do not count again."""
        assert stage.reducer is not None
        others = tuple(axis for axis in stage.reduce_axes if axis.name != COLUMN)
        step, thread, lane = self.along
        name = f"{stage.name}_acc"
        body = self._value(
            stage.body, self._vectors(stage.name, stage.body, others, LoopId.of(name, step))
        )
        if self.plan.column.extent % self.shape.width:
            body = Select(
                Binary("ge", self._column, self._step),
                body,
                identity(stage.reducer, stage.accumulator),
            )
        self._add(
            name,
            self.spatial,
            body,
            stage.accumulator,
            "local",
            stage,
            (*others, step, lane, thread),
        )
        value = Read(name, self.row)
        return value if stage.dtype == stage.accumulator else Cast(stage.dtype, value)

    def _keep(self, name: str, body: Scalar, dtype: DType, replaced: Read) -> None:
        """Keeps a stage or a row along the column, to be read in place of `replaced`."""
        scope: Literal["local", "shared"] = (
            "shared" if self.storage is RowStorage.SHARED else "local"
        )
        axes = [*self.spatial, *self.along]
        self._add(name, axes, self._value(body), dtype, scope)
        self.kept[replaced] = Read(name, tuple(Var(axis.name) for axis in axes))

    def _host(self, stage: Stage) -> None:
        """The group's output, whose loops host all other blocks."""
        rowwise = len(stage.axes) == len(self.stages[0].axes)
        axes = self.spatial if rowwise else [*self.spatial, *self.along]
        body = self._reduction(stage) if stage.reducer is not None else self._stored(stage, axes)
        element = self.row_indices | {COLUMN: self._column}
        indices = tuple(element[axis.name] for axis in stage.axes)
        self.blocks.append(
            Block(name=stage.name, axes=tuple(axes), buffer=stage.name, indices=indices, body=body)
        )

    def _stored(self, stage: Stage, axes: list[Axis]) -> Scalar:
        """What the host stores: its value, or the vector of registers in which it was
        computed lane by lane."""
        body = self._value(stage.body)
        by_lanes = self.shape.lanes > 1 and self.along[0] in axes
        plain = _has_vectors(body)
        preloads = self.storage is RowStorage.PRELOADED
        if not by_lanes or (plain and not preloads):
            return body
        vector = LoopId.of(stage.name, self.along[1])
        loads = self._vectors(stage.name, stage.body, (), vector, preloads=preloads)
        body = self._value(stage.body, loads)
        if plain:
            return body
        name = f"{stage.name}_value"
        self._add(name, axes, body, stage.dtype, "local")
        self.under[name] = vector
        return Read(name, tuple(Var(axis.name) for axis in axes))

    def _vectors(
        self,
        stage: str,
        body: Scalar,
        others: tuple[Axis, ...],
        loop: LoopId,
        *,
        preloads: bool = False,
    ) -> dict[Read, Scalar]:
        """Vectors of registers for what is read along the lanes, loaded in a loop.

        `preloads`: they are loaded before everything else instead.
        """
        vectors: dict[Read, Scalar] = {}
        axes = [*self.spatial, *others, *self.along]
        for read in dict.fromkeys(reads(body)) if self.shape.lanes > 1 else ():
            if not self._is_vector(read):
                continue
            name = f"{stage}_in{len(vectors)}"
            self._add(name, axes, self._value(read), self.dtypes[read.tensor], "local")
            vectors[read] = Read(name, tuple(Var(axis.name) for axis in axes))
            if preloads and read not in self.kept:
                self.preloads.add(name)
            else:
                self.under[name] = loop
        return vectors

    def _is_vector(self, read: Read) -> bool:
        """Whether the lanes read adjacent elements, one vector at most, of a row that is
        outside the group or kept in shared memory."""
        dtype = self.dtypes.get(read.tensor)
        if dtype is None or self.shape.lanes * DTYPE_BYTES[dtype] > VECTOR_BYTES:
            return False
        if read in self.kept:
            return self.storage is RowStorage.SHARED
        return is_contiguous(read)

    # --- pieces

    def _value(self, body: Scalar, instead: Mapping[Read, Scalar] | None = None) -> Scalar:
        """A body at the current element, members of the group and kept rows read from
        where they are."""
        values = {**self.kept, **(instead or {})}
        extents = {part.axis.name: part.axis.extent for part in self.plan.rows}
        extents[COLUMN] = self.plan.column.extent
        extents |= {axis.name: axis.extent for stage in self.stages for axis in stage.reduce_axes}
        redirected = rewrite(
            body, lambda node: values.get(node) if isinstance(node, Read) else None
        )
        shapes = {**self.shapes, **{buffer.name: buffer.shape for buffer in self.buffers}}
        plain = with_explicit_padding(redirected, shapes, extents)
        element = self.row_indices | {COLUMN: self._column}
        return replace_reads(substitute(plain, element), self.finished)

    def _add(
        self,
        name: str,
        axes: list[Axis],
        body: Scalar,
        dtype: DType,
        scope: Literal["local", "shared"],
        stage: Stage | None = None,
        reduce_axes: tuple[Axis, ...] = (),
    ) -> None:
        self.buffers.append(
            Buffer(name=name, shape=tuple(axis.extent for axis in axes), dtype=dtype, scope=scope)
        )
        self.blocks.append(
            Block(
                name=name,
                axes=tuple(axes),
                reduce_axes=reduce_axes,
                buffer=name,
                indices=tuple(Var(axis.name) for axis in axes),
                body=body,
                reducer=stage.reducer if stage is not None else None,
            )
        )

    def _place(self) -> None:
        """Nests everything under the host's rows, consumers first; then binds,
        vectorises and unrolls."""
        host = self.blocks[-1]
        threads = [part.thread for part in self.plan.rows]
        inner = [axis for axis in self.along if axis in host.axes]
        self.steps.append(Reorder(loops=_loops(host, [*self.grid, *threads, *inner])))
        last = self.spatial[-1]
        for block in reversed(self.blocks[:-1]):
            loop = self.under.get(block.name, LoopId.of(host.name, last))
            preloads = block.name in self.preloads
            self.steps.append(ComputeAt(block=block.name, loop=loop, first=preloads))
            inside = [
                axis for axis in (*block.axes, *block.reduce_axes) if axis not in self.spatial
            ]
            if inside:
                self.steps.append(Reorder(loops=_loops(block, inside)))
        for block in self.blocks:
            self._mark(block)
        shared = next((part.thread for part in self.plan.rows if part.threads > 1), threads[-1])
        self.steps.append(Bind(loop=LoopId.of(host.name, shared), axis="threadIdx.y"))
        self.steps.append(Fuse(loops=_loops(host, self.grid), into=LoopId(host.name, "grid")))
        self.steps.append(Bind(loop=LoopId(host.name, "grid"), axis="blockIdx.x"))

    def _mark(self, block: Block) -> None:
        """Unrolls, binds and vectorises a block's loops along the column."""
        step, thread, lane = self.along
        if step not in (*block.axes, *block.reduce_axes):
            return
        # The loop that has one step, and maybe one thread, of the block an iteration.
        within = self.under.get(block.name)
        unrolled = self.storage.in_registers or step.extent <= MAX_UNROLLED
        if within is None and step.extent > 1 and unrolled:
            self.steps.append(Unroll(loop=LoopId.of(block.name, step)))
        if within is None or within.axis != thread.name:
            self.steps.append(Bind(loop=LoopId.of(block.name, thread), axis="threadIdx.x"))
        if lane.extent > 1:
            vectorized = block.reducer is None and _has_vectors(block.body)
            loop = LoopId.of(block.name, lane)
            self.steps.append(Vectorize(loop=loop) if vectorized else Unroll(loop=loop))


def recomputed(group: RowGroup) -> tuple[Stage, ...]:
    """The group's stages with those along the column inlined into their readers."""
    stages = group.stages
    for producer in column_stages(group):
        current = next(stage for stage in stages if stage.name == producer.name)
        stages = tuple(inline_into(stage, current) for stage in stages if stage is not current)
    return stages


def column_stages(group: RowGroup) -> tuple[Stage, ...]:
    """Stages along the column that are read by others of the group."""
    return tuple(
        stage
        for stage in group.stages[:-1]
        if stage.reducer is None and len(stage.axes) > len(group.rows)
    )


def rows_read_again(stages: tuple[Stage, ...]) -> tuple[Read, ...]:
    """Rows from outside the group that a reduction reads, or several stages do: plain
    reads along the column."""
    members = {stage.name for stage in stages}
    uses: dict[Read, int] = {}
    for stage in stages:
        others = {axis.name for axis in stage.reduce_axes if axis.name != COLUMN}
        for read in dict.fromkeys(reads(stage.body)):
            if read.tensor not in members and _is_row(read, others):
                uses[read] = uses.get(read, 0) + (2 if stage.reducer is not None else 1)
    return tuple(read for read, count in uses.items() if count > 1)


def _is_row(read: Read, others: set[str]) -> bool:
    """Whether a read is never outside its tensor, and moves along the column and along
    no axis of `others`."""
    nodes = [node for index in read.indices for node in walk(index)]
    names = {node.name for node in nodes if isinstance(node, Var)}
    gathered = any(isinstance(node, Read) for node in nodes)
    return read.pad is None and not gathered and COLUMN in names and not names & others


def rows_read_once(stages: tuple[Stage, ...]) -> tuple[Read, ...]:
    """Rows from outside the group that only the output reads, if that goes along the
    column: contiguous ones."""
    host, members = stages[-1], {stage.name for stage in stages}
    if host.reducer is not None or len(host.axes) == len(stages[0].axes):
        return ()
    again = rows_read_again(stages)
    return tuple(
        read
        for read in dict.fromkeys(reads(host.body))
        if read.tensor not in members and read not in again and is_contiguous(read)
    )


def is_contiguous(read: Read) -> bool:
    """Whether a read goes along the column from one element to the next in memory,
    never outside its tensor."""
    forms = [linear(index) for index in read.indices]
    along = [0 if form is None else form.coefficient(COLUMN) for form in forms]
    return read.pad is None and None not in forms and along[-1:] == [1] and not any(along[:-1])


def _own_element(stage: Stage) -> Read:
    return Read(stage.name, tuple(Var(axis.name) for axis in stage.axes))


def _loops(block: Block, axes: list[Axis]) -> tuple[LoopId, ...]:
    return loops_of(block.name, axes)


def _has_vectors(body: Scalar) -> bool:
    """Whether a body can be computed a vector at a time: it calls and selects nothing."""
    selects = any(isinstance(node, Select) for node in walk(body))
    return not selects and not is_expensive(body)
