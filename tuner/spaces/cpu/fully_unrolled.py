"""Small programs as straight code: every loop of every stage is unrolled, and the
compiler sees which reads meet padding.

It then folds what is constant, computes once what is the same, and finds vectors by
itself among what lies side by side. Of a few hundred operations that is often more than
any nest of loops gains: a sum of three numbers and sixty constants has three loads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import TypeVar

from tuner.spaces.core.choice import Choice, choice, open_knobs
from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.core.space import Config, Knob
from tuner.spaces.core.target_space import WholeProgram
from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.facts import LoopNestFacts, Unrolling
from tuner.spaces.cpu.store_mode import StoreMode
from tuner.spaces.default_schedule import plain_blocks
from tuner.spaces.program.loops import LoopId
from tuner.spaces.program.marks import Unroll
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import MathFunctions
from tuner.spaces.program.tiles import add, constant, times
from tuner.spaces.rewrite.access import accesses, with_explicit_padding
from tuner.spaces.rewrite.algorithm import Algorithm
from tuner.spaces.rewrite.constant_folding import fold_through_selects
from tuner.spaces.rewrite.groups import TileGroup
from tuner.spaces.rewrite.predicates import live_fraction
from tuner.spaces.rewrite.stages import balanced_tree, cost, is_expensive
from tuner.workload.expression import (
    Cast,
    Scalar,
    Select,
    Stage,
    Unary,
    Var,
    rows_from_data,
    substitute,
    walk,
)
from tuner.workload.scalar_operators import REDUCTIONS, UNARY_OPERATORS

T = TypeVar("T")

FULLY_UNROLLED = "straight"  # as configs store it
# cost of a program, of which each operation is an instruction or two: the compiler
# takes a second
MOST = 4096

MOST_TERMS = 32  # of a reduction that is written out as a whole
AT_ONCE = (8, 4, 2, 1)  # terms of a longer one, the most that divide its last axis


@dataclass(frozen=True)
class FullyUnrolledSketch:
    """Of a group that is one stage. To the cost model it is one tile, the whole of it."""

    group: TileGroup
    context: SpaceContext

    @property
    def name(self) -> str:
        return FULLY_UNROLLED

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return open_knobs((self.math_functions,))

    @cached_property
    def math_functions(self) -> Choice[MathFunctions]:
        # A polynomial names its steps, which padding makes constant; TVM refuses a name
        # for another constant at the next point.
        called = [
            node
            for node in walk(self._body)
            if isinstance(node, Unary) and UNARY_OPERATORS[node.op].is_approximated
        ]
        varied = any(isinstance(inner, Select) for node in called for inner in walk(node))
        costly = is_expensive(self.group.anchor.body) and not varied
        values: tuple[MathFunctions, ...] = ("polynomial", "libm") if costly else ("libm",)
        return choice(self._owner, KnobRole.MATH_FUNCTIONS, values, str)

    @property
    def _owner(self) -> str:
        return f"{self.group.name}.{self.name}"

    @cached_property
    def facts(self) -> LoopNestFacts:
        stage = self.group.anchor
        names = tuple(axis.name for axis in stage.axes)
        reads = accesses(stage, self.context.shapes)
        reduces = stage.reducer is not None
        longest = max((axis.extent for axis in stage.reduce_axes), default=1)
        last = stage.reduce_axes[-1].extent if stage.reduce_axes else 1
        unrolling = Unrolling(position=len(stage.reduce_axes) - 1, factor=last)
        return LoopNestFacts(
            context=self.context,
            stages=(stage,),
            epilogue=None,
            spatial=stage.axes,
            reduction=stage.reduce_axes,
            vector=None,
            lanes=1,
            tiled=names,
            register_tile=self._fixed(
                KnobRole.REGISTER_TILE, tuple(axis.extent for axis in stage.axes)
            ),
            outer_order=self._fixed(KnobRole.OUTER_ORDER, names),
            inner_order=self._fixed(KnobRole.INNER_ORDER, names),
            reduction_block=self._fixed(KnobRole.REDUCTION_BLOCK, longest) if reduces else None,
            unrolling=self._fixed(KnobRole.UNROLL, unrolling) if reduces else None,
            reads=reads,
            copies=tuple(self._fixed(KnobRole.COPY, CopyMode.NONE) for _ in reads),
            prefetch=self._fixed(KnobRole.PREFETCH, 0),
            store_mode=self._fixed(KnobRole.STORE_MODE, StoreMode.CACHED),
            math_functions=self.math_functions,
            computed_share=live_fraction(stage, self.group.live_conditions) if reduces else 1.0,
        )

    def _fixed(self, role: KnobRole, value: T) -> Choice[T]:
        """A choice that leaves nothing open."""
        return Choice(owner=self._owner, role=role, values=(value,), stored=(role.value,))

    @property
    def _body(self) -> Scalar:
        """What is computed at a point, padding made explicit and functions of it evaluated."""
        stage = self.group.anchor
        return fold_through_selects(
            with_explicit_padding(stage.body, self.context.shapes, stage.extents)
        )

    def nest(self, config: Config) -> Nest:
        blocks, buffers = plain_blocks(self._summed(), self.context.shapes)
        return Nest(
            tuple(
                replace(block, math_functions=self.math_functions.of(config)) for block in blocks
            ),
            tuple(replace(buffer, scope="stack") for buffer in buffers),
            tuple(
                Unroll(loop=LoopId.of(block.name, axis))
                for block in blocks
                for axis in (*block.axes, *block.reduce_axes)
                if axis.extent > 1
            ),
        )

    def _summed(self) -> Stage:
        """The stage with a reduction of few terms written out as a tree, in which none
        waits for all before it; of more terms a few at a time, or the compiler would
        hold what all of them share."""
        stage = replace(self.group.anchor, body=self._body)
        if stage.reducer is None:
            return stage
        whole = prod(axis.extent for axis in stage.reduce_axes) <= MOST_TERMS
        *outer, inner = stage.reduce_axes
        count = next(count for count in AT_ONCE if inner.extent % count == 0)
        written = stage.reduce_axes if whole else (replace(inner, extent=count),)
        terms: list[Scalar] = []
        for place in product(*(range(axis.extent) for axis in written)):
            indices: dict[str, Scalar] = {
                axis.name: constant(term) for axis, term in zip(written, place, strict=True)
            }
            if not whole:
                indices = {inner.name: add(times(Var(inner.name), count), indices[inner.name])}
            terms.append(Cast(stage.accumulator, substitute(stage.body, indices)))
        body = balanced_tree(REDUCTIONS[stage.reducer].combine, terms)
        if whole:
            return replace(stage, reducer=None, reduce_axes=(), body=body)
        return replace(
            stage, reduce_axes=(*outer, replace(inner, extent=inner.extent // count)), body=body
        )


def fully_unrolled(
    algorithm: Algorithm, context: SpaceContext
) -> WholeProgram[LoopNestFacts] | None:
    """The algorithm with each stage by itself. None of a large one, and of one that
    looks elements up, has ragged ranges or scatters terms."""
    stages = algorithm.expression.stages
    if sum(cost(stage) for stage in stages) > MOST:
        return None
    if any(rows_from_data(stage) is not None for stage in stages):
        return None
    if any(read.gathered for stage in stages for read in accesses(stage, algorithm.shapes)):
        return None
    groups = tuple(TileGroup(anchor=stage, epilogue=None) for stage in stages)
    return WholeProgram(
        name=FULLY_UNROLLED,
        algorithm=replace(algorithm, groups=groups),
        sketches=tuple(FullyUnrolledSketch(group, context) for group in groups),
    )
