"""The tile nest of a reduction: accumulators in registers, results written once.

Loops, outermost first: cache blocks of each spatial axis, reduction blocks, register
tiles within a block, the reduction, and the unrolled register tile whose accumulators
live in registers. Goto & van de Geijn, "Anatomy of High-Performance Matrix
Multiplication" (2008) gives the reason for each level. Here it is made of any stage,
not only of a matrix product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.spaces.cpu.copy_prefetch import copy_prefetches
from tuner.spaces.cpu.group_scales import GroupScale, split_group_scale
from tuner.spaces.cpu.nest_parts import NestParts
from tuner.spaces.cpu.prefetch import gathered_rows, row_prefetches, sum_prefetches
from tuner.spaces.cpu.tile_copies import TileCopies
from tuner.spaces.cpu.tile_loops import TileLoops
from tuner.spaces.cpu.tile_plan import TilePlan
from tuner.spaces.cpu.write_back import write_back
from tuner.spaces.cpu.zero_point import ZeroPointSums, add_zero_point
from tuner.spaces.program.loops import LoopId, loops_of
from tuner.spaces.program.marks import AmxParts, LoadElements, NoUnroll, Reassociate, Unroll
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import (
    Buffer,
    ComputeAt,
    DecomposeReduction,
    Prefetch,
    Reorder,
)
from tuner.spaces.rewrite.groups import TileGroup
from tuner.spaces.rewrite.liveness import tile_condition
from tuner.spaces.rewrite.predicates import conjuncts, split_predicates
from tuner.workload.dtypes import DType
from tuner.workload.expression import Axis, Read, Scalar, Select, Var, ragged_range, substitute

# Iterations of a loop that the compiler must not unroll; unrolling fewer often pays.
FEWEST_ROLLED = 16


@dataclass(frozen=True)
class _Term:
    """What one iteration of the reduction adds."""

    body: Scalar
    when: tuple[Scalar, ...]  # conditions under which it changes the sum
    prefetches: tuple[Prefetch, ...]


class SumNest:
    """Builds the nest of one group with a reduction under one plan."""

    def __init__(
        self,
        group: TileGroup,
        plan: TilePlan,
        shapes: Mapping[str, tuple[int, ...]],
        dtypes: Mapping[str, DType],
    ) -> None:
        self._group, self._plan = group, plan
        self._loops = TileLoops(plan)
        self._parts = NestParts(math_functions=plan.math_functions, threads=plan.threads)
        self._copies = TileCopies(group, plan, self._parts, shapes, dtypes)
        self._zero_point: ZeroPointSums | None = None
        self._group_scale: GroupScale | None = None
        self._sums = f"{group.name}_acc"  # the block that hosts all others

    def build(self) -> Nest:
        """All blocks, buffers and steps."""
        term = self._term()
        corrected = self._zero_point is not None or self._group_scale is not None
        if self._plan.blocked is None and not corrected:
            innermost = self._accumulate_at_once(term)
        elif self._plan.instruction.register_rows is not None:
            innermost = self._accumulate_in_matrix_registers(term)
        else:
            innermost = self._accumulate_by_blocks(term)
        write_back(
            self._group,
            self._plan,
            self._parts,
            self._copies.shapes,
            self._copies.dtypes,
            self._sums,
        )
        if self._zero_point is not None:
            self._zero_point.place(self._sums, self._copies.packed_levels())
        self._copies.place(self._sums)
        self._mark_reduction(innermost)
        self._mark_registers(innermost)
        self._parts.share_loops(self._sums, self._loops.outer, self._copies.levels)
        self._decompose(innermost)
        return self._parts.nest()

    # --- blocks

    def _term(self) -> _Term:
        """The anchor's body in the loops of the nest; adds its copies."""
        plan, anchor, loops, copies = self._plan, self._group.anchor, self._loops, self._copies
        assert anchor.reducer is not None
        body = substitute(copies.add(), loops.indices)
        if plan.instruction.groups is not None:
            body, self._group_scale = split_group_scale(
                body, self._group, loops, self._parts, copies.shapes
            )
        within: tuple[Scalar, ...] = ()
        if ragged_range(anchor) is not None:
            assert isinstance(body, Select)
            within, body = conjuncts(body.cond), body.then
        when = within
        if not plan.instruction.axes:
            lanes = {loops.vector_lane}
            conditions, body = split_predicates(body, anchor.reducer, anchor.accumulator, lanes)
            when = (*within, *self._live(), *conditions)
        if plan.instruction.zero_point:
            body, self._zero_point = add_zero_point(
                body, self._group, plan.instruction.zero_point, loops, self._parts
            )
        return _Term(body, when, self._prefetches(within) if plan.prefetch else ())

    def _prefetches(self, within: tuple[Scalar, ...]) -> tuple[Prefetch, ...]:
        """`within` holds in the iterations of the sum."""
        plan, anchor, loops, copies = self._plan, self._group.anchor, self._loops, self._copies
        if plan.far:
            rows = gathered_rows(anchor, plan.vector, copies.shapes)
            return row_prefetches(plan, anchor, rows, loops, copies.dtypes, within)
        prefetches = (
            ()
            if plan.instruction.axes
            else sum_prefetches(plan, anchor, loops, copies.shapes, copies.dtypes)
        )
        for access, copy in copies.whole:
            prefetches += copy_prefetches(plan, anchor, loops, access, copy)
        return prefetches

    def _live(self) -> list[Scalar]:
        """Conditions under which any term matters of those that the unrolled body adds."""
        tile = [*self._loops.register, *(axis.unrolled for axis in self._plan.reduction)]
        return [
            tile_condition(condition, self._loops.indices, tile)
            for condition in self._group.live_conditions
        ]

    def _buffer(
        self, name: str, axes: list[Axis], *, in_registers: bool, dtype: DType | None = None
    ) -> None:
        shape = tuple(axis.extent for axis in axes)
        dtype = dtype or self._group.anchor.accumulator
        self._parts.buffers.append(
            Buffer(name=name, shape=shape, dtype=dtype, scope="stack" if in_registers else "global")
        )

    def _accumulate(
        self, name: str, axes: list[Axis], reduce_axes: list[Axis], term: _Term
    ) -> None:
        self._parts.compute(
            name,
            axes,
            [Var(axis.name) for axis in axes],
            term.body,
            reduce_axes=reduce_axes,
            reducer=self._group.anchor.reducer,
            when=term.when,
            prefetches=term.prefetches,
        )

    def _order(self, block: str, axes: list[Axis]) -> None:
        self._parts.steps.append(Reorder(loops=loops_of(block, axes)))

    def _accumulate_at_once(self, term: _Term) -> str:
        """A reduction in one block: sums stay in registers. Returns the innermost block."""
        loops, sums = self._loops, self._sums
        reduction = [*loops.reduction, *loops.instruction]
        self._buffer(sums, loops.spatial, in_registers=True)
        self._accumulate(sums, loops.spatial, reduction, term)
        tile = [*loops.reduction, *loops.register, *loops.instruction]
        self._order(sums, [*loops.outer, *loops.inner, *tile])
        return sums

    def _accumulate_in_matrix_registers(self, term: _Term) -> str:
        """A reduction in blocks, each of which adds to what the one before has stored.

        Matrix registers are loaded from memory and stored there.
        """
        loops, sums = self._loops, self._sums
        reduction = [*loops.reduction_blocks, *loops.reduction, *loops.instruction]
        self._buffer(sums, loops.spatial, in_registers=False)
        self._accumulate(sums, loops.spatial, reduction, _Term(term.body, (), ()))
        tile = [*loops.reduction, *loops.register, *loops.instruction]
        self._order(sums, [*loops.outer, *loops.reduction_blocks, *loops.inner, *tile])
        return sums

    def _accumulate_by_blocks(self, term: _Term) -> str:
        """A reduction in blocks, whose partial sums in registers a second block adds up."""
        loops, sums, blocks = self._loops, self._sums, self._loops.reduction_blocks
        partial = f"{self._group.name}_part"
        partial_axes = [*blocks, *loops.spatial]
        dtype = self._plan.instruction.group_dtype
        self._buffer(partial, partial_axes, in_registers=True, dtype=dtype)
        self._buffer(sums, loops.spatial, in_registers=not blocks)
        self._accumulate(partial, partial_axes, [*loops.reduction, *loops.instruction], term)
        total: Scalar = Read(partial, tuple(Var(axis.name) for axis in partial_axes))
        if self._zero_point is not None:
            total = self._zero_point.subtract_from(total)
        if self._group_scale is not None:
            total = self._group_scale.applied(total)
        self._accumulate(sums, loops.spatial, blocks, _Term(total, (), ()))
        self._order(sums, [*loops.outer, *blocks, *loops.inner, *loops.register])
        self._parts.steps.append(ComputeAt(block=partial, loop=LoopId.of(sums, loops.inner[-1])))
        self._order(partial, [*loops.reduction, *loops.register, *loops.instruction])
        return partial

    # --- marks

    def _mark_reduction(self, innermost: str) -> None:
        """Unrolls what the plan unrolls, and keeps the compiler from unrolling long loops."""
        plan, steps = self._plan, self._parts.steps
        for axis in plan.reduction:
            if axis.unroll > 1:
                steps.append(Unroll(loop=LoopId.of(innermost, axis.unrolled)))
        if plan.instruction.reassociated:
            along = LoopId.of(innermost, plan.reduction[-1].inner)
            steps.append(Reassociate(loop=along))
            steps += [LoadElements(loop=along)] * plan.instruction.loads_elements
        if plan.vector is not None and plan.instruction.register_rows is None:
            rolled = [axis.inner for axis in plan.reduction if axis.inner.extent >= FEWEST_ROLLED]
            steps += [NoUnroll(loop=LoopId.of(innermost, axis)) for axis in rolled]

    def _mark_registers(self, innermost: str) -> None:
        """Unrolls and vectorises register tiles, or gives them to matrix registers."""
        plan, loops, steps = self._plan, self._loops, self._parts.steps
        for block in dict.fromkeys((innermost, self._sums)):
            if block == innermost and plan.instruction.register_rows is not None:
                steps.append(loops.amx_tile(block))
                parts = plan.instruction.factor_parts
                over_parts = [
                    axis.inner
                    for axis in plan.reduction
                    if parts is not None and axis.axis.name == parts.axis
                ]
                steps += [AmxParts(loop=loop) for loop in loops_of(block, over_parts)]
            else:
                dot = bool(loops.instruction) and block == innermost
                steps += loops.innermost_marks(block, dot=dot)

    def _decompose(self, innermost: str) -> None:
        """Splits initialisation off above each reduction, so that its loops only accumulate.

        Done last, because TVM marks no loop of a reduction that has lost its
        initialisation.
        """
        outermost = {innermost: self._loops.reduction[0]}
        if self._plan.blocked is not None:
            outermost[self._sums] = self._plan.blocked.outer
        for block, loop in outermost.items():
            self._parts.steps.append(DecomposeReduction(block=block, loop=LoopId.of(block, loop)))
            dot = bool(self._loops.instruction) and block == innermost
            self._parts.steps += self._loops.innermost_marks(block, dot=dot, initial=True)
        if self._zero_point is not None:
            self._zero_point.decompose()
