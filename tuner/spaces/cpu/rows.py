"""The row sketch for CPUs: stages that share rows run a few rows at a time, reductions
along the column in parallel lanes.

A reduction keeps `tile` partial results of each row in registers, adds the rest of a
column the tile does not divide from one masked, overlapping tile, and folds the lanes
by halves. Stages along the column that are kept between two others live in a buffer of
one row, laid out in the same tiles. The same nest serves a matrix product whose
operands are both contiguous along the reduction: its rows are then tiles of output
elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.spaces.program.loops import LoopId, loops_of
from tuner.spaces.program.marks import Unroll, Vectorize
from tuner.spaces.program.nest import Nest, parallel_prefix
from tuner.spaces.program.program import (
    Block,
    Buffer,
    ComputeAt,
    DecomposeReduction,
    MathFunctions,
    Prefetch,
    Reorder,
    Step,
)
from tuner.spaces.program.tiles import TiledAxis, add, at_most, constant, times
from tuner.spaces.rewrite.access import accesses, with_explicit_padding
from tuner.spaces.rewrite.groups import COLUMN, RowGroup, replace_reads
from tuner.spaces.rewrite.liveness import tile_condition
from tuner.spaces.rewrite.predicates import identity, iterators
from tuner.spaces.rewrite.stages import balanced_tree, inline_into
from tuner.workload.expression import (
    COMBINE,
    Axis,
    Binary,
    Cast,
    Const,
    DType,
    Read,
    Scalar,
    Select,
    Stage,
    Unary,
    Var,
    reads,
    rewrite,
    substitute,
    walk,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan:
    """A config of the sketch, decoded."""

    rows: tuple[TiledAxis, ...]
    outer_order: tuple[str, ...]  # row axes, cache-block loops, outermost first
    inner_order: tuple[str, ...]  # row axes, tile loops within a cache block
    column: TiledAxis  # the column in tiles of vectors
    recomputed: frozenset[str]  # stages inlined into their readers instead of kept
    math_functions: MathFunctions
    # tiles of rows that what the first pass reads is fetched ahead of it, by the second
    # pass; 0 for not at all
    prefetch: int
    threads: int
    non_temporal: bool = False  # whether an output of whole rows is written past the caches

    def row(self, name: str) -> TiledAxis:
        return next(tiled for tiled in self.rows if tiled.axis.name == name)


class RowNest:
    """Builds the blocks and steps of one row group under one plan."""

    def __init__(
        self, group: RowGroup, plan: RowPlan, shapes: Mapping[str, tuple[int, ...]]
    ) -> None:
        self.plan, self.shapes, self.live_conditions = plan, shapes, group.live_conditions
        self.stages = _recompute(group.stages, plan.recomputed)
        self.name = group.name
        self.blocks: list[Block] = []
        self.buffers: list[Buffer] = []
        self.steps: list[Step] = []
        self.outer = [plan.row(name).outer for name in plan.outer_order]
        self.inner = [plan.row(name).inner for name in plan.inner_order]
        self.register = [axis for tiled in plan.rows for axis in tiled.register]
        self.spatial = [*self.outer, *self.inner, *self.register]
        self.here: tuple[Scalar, ...] = tuple(Var(axis.name) for axis in self.spatial)
        self.rows: dict[str, Scalar] = {tiled.axis.name: tiled.index for tiled in plan.rows}
        self.vectors, self.lanes = plan.column.register
        first, *later = passes(self.stages, len(plan.rows))
        self.fetching = later[0].name if plan.prefetch and later else None
        self.fetched = row_reads(first, group, shapes) if self.fetching else ()
        self.finished: dict[str, Scalar] = {}  # value of each stage that has none along the column
        self.reciprocals: dict[
            Scalar, tuple[str, str]
        ] = {}  # by divisor: its scale, its reciprocal
        self.kept: set[str] = set()  # stages kept along the column
        self.reducing: list[
            tuple[str, list[Axis]]
        ] = []  # reduction blocks still to be decomposed, with their reduction loops

    def build(self) -> Nest:
        for stage in self.stages[:-1]:
            if stage.reducer is not None:
                self.finished[stage.name] = self._reduction(stage)
            elif len(stage.axes) > len(self.plan.rows):
                self._keep(stage)
            else:
                self._scalar(stage)
        self._host(self.stages[-1])
        self._place()
        return Nest(tuple(self.blocks), tuple(self.buffers), tuple(self.steps))

    # --- stages
    # ------------------------------------------------------------------------------

    def _reduction(self, stage: Stage) -> Scalar:
        """Blocks that reduce a stage; returns the expression of its finished value."""
        assert stage.reducer is not None
        column, dtype = self.plan.column, stage.accumulator
        others = [axis for axis in stage.reduce_axes if axis.name != COLUMN]
        whole = column.axis.extent // column.tile
        parts: list[str] = []
        lanes = (self.vectors, self.lanes)
        if whole:
            steps = Axis(name=f"{COLUMN}_s", extent=whole)
            name = f"{stage.name}_acc"
            self._lanes_block(
                name,
                stage,
                [*others, steps],
                Var(steps.name),
                add(times(Var(steps.name), column.tile), column.offset),
                None,
            )
            parts.append(name)
        rest = column.axis.extent % column.tile
        if rest:
            name = f"{stage.name}_rest"
            fresh = Binary("ge", column.offset, constant(column.tile - rest))
            index = add(column.offset, constant(column.axis.extent - column.tile))
            self._lanes_block(name, stage, others, constant(whole), index, fresh)
            parts.append(name)
        combine = COMBINE[stage.reducer]
        reads: list[Scalar] = [
            Read(part, (*self.here, constant(vector), Var(self.lanes.name)))
            for vector in range(lanes[0].extent)
            for part in parts
        ]
        folded = f"{stage.name}_fold{self.lanes.extent}"
        self._local(folded, [self.lanes], balanced_tree(combine, reads), dtype)
        width = self.lanes.extent
        while width > 1:
            width //= 2
            half = Axis(name=self.lanes.name, extent=width)
            low, high = (
                Read(folded, (*self.here, lane))
                for lane in (Var(half.name), add(Var(half.name), constant(width)))
            )
            folded = f"{stage.name}_fold{width}"
            self._local(folded, [half], Binary(combine, low, high), dtype)
        return _rounded(Read(folded, (*self.here, constant(0))), stage)

    def _lanes_block(
        self,
        name: str,
        stage: Stage,
        reductions: list[Axis],
        tile: Scalar,
        index: Scalar,
        fresh: Scalar | None,
    ) -> None:
        """Partial results of all lanes: over whole tiles of the column, or (with
        `fresh`) of the lanes no whole tile covered."""
        assert stage.reducer is not None
        body = self._value(stage, index, tile)
        if fresh is not None:
            body = Select(fresh, body, identity(stage.reducer, stage.accumulator))
        axes = [*self.spatial, self.vectors, self.lanes]
        self.buffers.append(
            Buffer(
                name=name,
                shape=tuple(axis.extent for axis in axes),
                dtype=stage.accumulator,
                scope="stack",
            )
        )
        self.blocks.append(
            Block(
                name=name,
                axes=tuple(axes),
                reduce_axes=tuple(reductions),
                buffer=name,
                indices=tuple(Var(axis.name) for axis in axes),
                body=body,
                reducer=stage.reducer if reductions else None,
                when=self._when(stage, index) if reductions else (),
                math_functions=self.plan.math_functions,
                prefetches=self._prefetches(stage, index) if reductions else (),
            )
        )
        if reductions:
            self.reducing.append((name, reductions))

    def _keep(self, stage: Stage) -> None:
        """A stage along the column that others read: a row of it, in the column's tiles."""
        column = self.plan.column
        axes = [*self.spatial, column.outer, self.vectors, self.lanes]
        self.buffers.append(
            Buffer(name=stage.name, shape=tuple(axis.extent for axis in axes), dtype=stage.dtype)
        )
        self.blocks.append(
            Block(
                name=stage.name,
                axes=tuple(axes),
                buffer=stage.name,
                indices=tuple(Var(axis.name) for axis in axes),
                body=self._value(stage, column.index, Var(column.outer.name)),
                when=(when := self._when(stage, column.index)),
                otherwise=identity("sum", stage.dtype) if when else None,
                math_functions=self.plan.math_functions,
                prefetches=self._prefetches(stage, column.index),
            )
        )
        self.kept.add(stage.name)

    def _scalar(self, stage: Stage) -> None:
        """One value a row."""
        self._local(stage.name, [], self._value(stage, None, None), stage.dtype)
        self.finished[stage.name] = Read(stage.name, self.here)

    def _host(self, stage: Stage) -> None:
        """The group's output, whose loops host all other blocks."""
        column = self.plan.column
        if stage.reducer is not None:
            body, along = self._reduction(stage), []
        elif len(stage.axes) > len(self.plan.rows):
            body, along = (
                self._value(stage, column.index, Var(column.outer.name)),
                [column.outer, self.vectors, self.lanes],
            )
        else:
            body, along = self._value(stage, None, None), []
        where = self.rows | {COLUMN: column.index}
        when = self._when(stage, column.index) if along else ()
        axes = [*self.spatial, *along]
        self.blocks.append(
            Block(
                name=stage.name,
                axes=tuple(axes),
                buffer=stage.name,
                indices=tuple(where[axis.name] for axis in stage.axes),
                body=body,
                when=when,
                otherwise=identity("sum", stage.dtype) if when else None,
                math_functions=self.plan.math_functions,
                prefetches=self._prefetches(stage, column.index) if along else (),
                non_temporal=self.plan.non_temporal,
            )
        )

    # --- pieces
    # ------------------------------------------------------------------------------

    def _when(self, stage: Stage, index: Scalar) -> tuple[Scalar, ...]:
        """Conditions under which anything in a tile of the column, at this index, matters."""
        indices, tile = self.rows | {COLUMN: index}, [*self.register, self.vectors, self.lanes]
        conditions = (
            condition
            for condition in self.live_conditions.get(stage.name, ())
            if iterators(condition) <= set(indices)
        )
        return tuple(tile_condition(condition, indices, tile) for condition in conditions)

    def _value(self, stage: Stage, index: Scalar | None, tile: Scalar | None) -> Scalar:
        """The stage's body at a column index, members of the group read from where they
        are kept."""
        values: dict[str, Scalar] = dict(self.finished)
        if tile is not None:
            lanes = (Var(self.vectors.name), Var(self.lanes.name))
            values |= {name: Read(name, (*self.here, tile, *lanes)) for name in self.kept}
        body = with_explicit_padding(stage.body, self.shapes, stage.extents)
        if index is not None:
            body = rewrite(body, self._by_reciprocal)
            values |= self.finished
        # Substitute first: what replaces a read already speaks of the new iterators.
        substituted = substitute(body, self.rows | ({COLUMN: index} if index is not None else {}))
        return replace_reads(substituted, values)

    def _by_reciprocal(self, node: Scalar) -> Scalar | None:
        """A division by one number a row as a product with its reciprocal, within 1.5
        ulp: a vector's takes as long as thirty products on Intel's cores."""
        if not (
            isinstance(node, Binary) and node.op == "div" and self._is_float32_of_row(node.rhs)
        ):
            return None
        if node.rhs not in self.reciprocals:
            self.reciprocals[node.rhs] = self._reciprocal(node.rhs)
        scale, reciprocal = self.reciprocals[node.rhs]
        dividend = rewrite(node.lhs, self._by_reciprocal)
        return Binary("mul", Binary("mul", dividend, Read(scale, ())), Read(reciprocal, ()))

    def _reciprocal(self, divisor: Scalar) -> tuple[str, str]:
        """Names of a scale of both sides, and of the scaled divisor's reciprocal, a
        normal number whatever the divisor is."""
        name = f"{self.name}_divisor{len(self.reciprocals)}"
        divisor = replace_reads(substitute(divisor, self.rows), self.finished)
        unit, small, large = (Const(2.0**exponent, "float32") for exponent in (0, -64, 64))
        size = Unary("abs", divisor)
        scale = Select(
            Binary("lt", size, small), large, Select(Binary("gt", size, large), small, unit)
        )
        scaled = f"{name}_scale"
        self._local(scaled, [], scale, "float32")
        self.finished[scaled] = Read(scaled, self.here)
        self._local(
            name, [], Binary("div", unit, Binary("mul", divisor, self.finished[scaled])), "float32"
        )
        self.finished[name] = Read(name, self.here)
        return scaled, name

    def _is_float32_of_row(self, node: Scalar) -> bool:
        """Whether a value is made of float32 numbers that each row has one of, and of
        nothing that varies in a row."""
        of_row = {
            stage.name
            for stage in self.stages
            if stage.name in self.finished and stage.dtype == "float32"
        }
        tensors = {read.tensor for read in reads(node)}
        varying = any(
            isinstance(inner, Var) and inner.name not in self.rows for inner in walk(node)
        )
        return (
            bool(tensors)
            and tensors <= of_row
            and not varying
            and not any(isinstance(inner, Cast) for inner in walk(node))
        )

    def _prefetches(self, stage: Stage, place: Scalar) -> tuple[Prefetch, ...]:
        """What rows to come will read at this place of the column: memory would idle
        while a pass works on what caches hold."""
        if stage.name != self.fetching:
            return ()
        column = substitute(place, {self.lanes.name: constant(0)})
        last = next(tiled for tiled in reversed(self.plan.rows) if tiled.axis.extent > 1)
        coming = at_most(
            add(last.index, constant(self.plan.prefetch * last.tile)), last.axis.extent - 1
        )
        where = self.rows | {last.axis.name: coming, COLUMN: column}
        moved = (
            replace(read, indices=tuple(substitute(index, where) for index in read.indices))
            for read in self.fetched
        )
        return tuple(Prefetch(read=read) for read in moved)

    def _local(self, name: str, extra: list[Axis], body: Scalar, dtype: DType) -> None:
        axes = [*self.spatial, *extra]
        self.buffers.append(
            Buffer(name=name, shape=tuple(axis.extent for axis in axes), dtype=dtype, scope="stack")
        )
        self.blocks.append(
            Block(
                name=name,
                axes=tuple(axes),
                buffer=name,
                indices=tuple(Var(axis.name) for axis in axes),
                body=body,
                math_functions=self.plan.math_functions,
            )
        )

    def _place(self) -> None:
        """Nests everything under the host's rows, consumers first, then orders,
        vectorises and decomposes each block."""
        host = self.blocks[-1]
        self.steps.append(
            Reorder(loops=loops_of(host.name, [*self.outer, *self.inner, *self._within(host, [])]))
        )
        last = (self.inner or self.outer)[-1]
        reducing = dict(self.reducing)
        for block in reversed(self.blocks[:-1]):
            self.steps.append(ComputeAt(block=block.name, loop=LoopId.of(host.name, last)))
            self.steps.append(
                Reorder(
                    loops=loops_of(block.name, self._within(block, reducing.get(block.name, [])))
                )
            )
        for block in self.blocks:
            self._mark(block)
        self.steps += parallel_prefix(host.name, self.outer, self.plan.threads, [])
        for name, reductions in self.reducing:
            self.steps.append(DecomposeReduction(block=name, loop=LoopId.of(name, reductions[0])))
            self._mark(next(block for block in self.blocks if block.name == name), initial=True)

    def _within(self, block: Block, reductions: list[Axis]) -> list[Axis]:
        """The block's loops below the rows: tiles of the column or reductions, then
        unrolled rows and vectors, lanes last."""
        names = {axis.name for axis in block.axes}
        column = [axis for axis in (self.plan.column.outer,) if axis.name in names]
        unrolled = [
            *self.register,
            *(axis for axis in block.axes if axis.name in {self.vectors.name, self.lanes.name}),
        ]
        return [*reductions, *column, *unrolled]

    def _mark(self, block: Block, *, initial: bool = False) -> None:
        for axis in block.axes:
            if axis.extent > 1 and axis.name == self.lanes.name:
                self.steps.append(Vectorize(loop=LoopId.of(block.name, axis, initial=initial)))
            elif axis.extent > 1 and (axis in self.register or axis.name == self.vectors.name):
                self.steps.append(Unroll(loop=LoopId.of(block.name, axis, initial=initial)))


def passes(stages: Sequence[Stage], rows: int) -> list[Stage]:
    """The stages of a group that go along its column."""
    return [stage for stage in stages if stage.reducer is not None or len(stage.axes) > rows]


def row_reads(
    stage: Stage, group: RowGroup, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Read, ...]:
    """What a stage reads of the group's inputs in whole vectors, other elements for
    each row of the last axis of rows."""
    inside = {member.name for member in group.stages}
    shared_axes = {COLUMN, *(axis.name for axis in group.rows)}  # to every pass
    last = next((axis for axis in reversed(group.rows) if axis.extent > 1), None)
    return tuple(
        access.read
        for access in accesses(stage, shapes)
        if last is not None
        and access.read.tensor not in inside
        and not (access.padded or access.gathered)
        and access.stride(COLUMN) == 1
        and last.name in access.axes <= shared_axes
    )


def _recompute(stages: tuple[Stage, ...], names: frozenset[str]) -> tuple[Stage, ...]:
    for name in names:
        producer = next(stage for stage in stages if stage.name == name)
        stages = tuple(inline_into(stage, producer) for stage in stages if stage is not producer)
    return stages


def _rounded(value: Scalar, stage: Stage) -> Scalar:
    return value if stage.dtype == stage.accumulator else Cast(stage.dtype, value)
