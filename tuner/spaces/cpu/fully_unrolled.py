"""Small programs as straight code: every loop of every stage is unrolled, and the
compiler sees which reads meet padding.

It then folds what is constant, computes once what is the same, and finds vectors by
itself among what lies side by side. Of a few hundred operations that is often more than
any nest of loops gains: a sum of three numbers and sixty constants has three loads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from tuner.spaces.core.space import Value
from tuner.spaces.cpu.tile_knobs import TileSketch
from tuner.spaces.default_schedule import plain_blocks
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import Mark
from tuner.spaces.program.tiles import add, constant, times
from tuner.spaces.rewrite.access import Access, accesses, unpadded
from tuner.spaces.rewrite.algorithm import Algorithm
from tuner.spaces.rewrite.constant_folding import lifted
from tuner.spaces.rewrite.groups import TileGroup
from tuner.spaces.rewrite.stages import APPROXIMATED, cost, tree
from tuner.target.target import Target
from tuner.workload.expression import (
    COMBINE,
    Cast,
    Scalar,
    Select,
    Stage,
    Unary,
    Var,
    substitute,
    walk,
)

STRAIGHT = "straight"
# cost of a program, of which each operation is an instruction or two: the compiler
# takes a second
MOST = 4096

MOST_TERMS = 32  # of a reduction that is written out as a whole
AT_ONCE = (8, 4, 2, 1)  # terms of a longer one, the most that divide its last axis


@dataclass(frozen=True)
class StraightSketch(TileSketch):
    """Of a group that is one stage. To the cost model it is one tile, the whole of it."""

    @property
    def name(self) -> str:
        return STRAIGHT

    def register_values(self) -> list[tuple[int, ...]]:
        return [tuple(axis.extent for axis in self.group.anchor.axes)]

    def unroll_values(self) -> list[tuple[int, int]]:
        axes = self.group.anchor.reduce_axes
        return [(len(axes) - 1, axes[-1].extent)]

    def copy_values(self, found: Access) -> list[str]:
        return ["none"]

    def _block_values(self, name: str) -> list[int]:
        return [0]

    def _depth_values(self) -> list[int]:
        return [self._main_reduction().extent]

    def _major(self) -> list[str]:
        return []

    def _mathematics_values(self) -> list[str]:
        # A polynomial names its steps, which padding makes constant; TVM refuses a name
        # for another constant at the next point.
        called = [
            node for node in walk(self._body) if isinstance(node, Unary) and node.op in APPROXIMATED
        ]
        varied = any(isinstance(inner, Select) for node in called for inner in walk(node))
        return ["libm"] if varied else super()._mathematics_values()

    @property
    def _body(self) -> Scalar:
        """What is computed at a point, padding made explicit and functions of it evaluated."""
        stage = self.group.anchor
        return lifted(unpadded(stage.body, self.shapes, stage.extents))

    def nest(self, config: Mapping[str, Value]) -> Nest:
        blocks, buffers = plain_blocks(self._summed(), self.shapes)
        return Nest(
            tuple(replace(block, mathematics=self.plan(config).mathematics) for block in blocks),
            tuple(replace(buffer, scope="stack") for buffer in buffers),
            tuple(
                Mark(loop=f"{block.name}.{axis.name}", how="unroll")
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
            at: dict[str, Scalar] = {
                axis.name: constant(term) for axis, term in zip(written, place, strict=True)
            }
            if not whole:
                at = {inner.name: add(times(Var(inner.name), count), at[inner.name])}
            terms.append(Cast(stage.accumulator, substitute(stage.body, at)))
        body = tree(COMBINE[stage.reducer], terms)
        if whole:
            return replace(stage, reducer=None, reduce_axes=(), body=body)
        return replace(
            stage, reduce_axes=(*outer, replace(inner, extent=inner.extent // count)), body=body
        )


def straight(
    algorithm: Algorithm, target: Target, threads: int
) -> tuple[Algorithm, Sequence[StraightSketch]] | None:
    """The algorithm with each stage by itself, and its sketches. None of a large one,
    and of one that looks elements up."""
    stages = algorithm.expression.stages
    if sum(cost(stage) for stage in stages) > MOST:
        return None
    if any(found.gathered for stage in stages for found in accesses(stage, algorithm.shapes)):
        return None
    groups = tuple(TileGroup(anchor=stage, epilogue=None) for stage in stages)
    sketches = [
        StraightSketch(group, None, target, threads, algorithm.shapes, algorithm.dtypes)
        for group in groups
    ]
    return replace(algorithm, groups=groups), sketches
