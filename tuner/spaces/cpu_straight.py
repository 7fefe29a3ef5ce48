"""Small programs as straight code: every loop of every stage is unrolled, and the compiler sees which reads meet padding.

It then folds what is constant, computes once what is the same, and finds vectors by itself among what lies side by side. Of a few
hundred operations that is often more than any nest of loops gains: a sum of three numbers and sixty constants has three loads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.spaces.access import Access, accesses
from tuner.spaces.algorithm import Algorithm
from tuner.spaces.cpu_tile_knobs import TileSketch
from tuner.spaces.default import plain_blocks
from tuner.spaces.groups import TileGroup
from tuner.spaces.nest import Nest
from tuner.spaces.program import Block, Mark, Reorder, Step
from tuner.spaces.space import Value
from tuner.spaces.stages import approximated, cost
from tuner.target.target import Target
from tuner.workload.expression import Axis, Read, Select, walk

STRAIGHT = "straight"
MOST = 4096  # cost of a program, of which each operation is an instruction or two: the compiler takes a second


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
        # A polynomial names its steps, which padding makes constant; TVM refuses a name for another constant at the next point.
        varied = any(isinstance(node, Select) or (isinstance(node, Read) and node.pad) for node in walk(self.group.anchor.body))
        return ["libm"] if varied else super()._mathematics_values()

    def nest(self, config: Mapping[str, Value]) -> Nest:
        mathematics = self.plan(config).mathematics
        blocks, buffers = plain_blocks(self.group.anchor, self.shapes)
        steps: list[Step] = []
        for block in blocks:
            axes = self._order(block)
            if len(axes) > 1:
                steps.append(Reorder(loops=tuple(f"{block.name}.{axis.name}" for axis in axes)))
            steps += [Mark(loop=f"{block.name}.{axis.name}", how="unroll") for axis in axes if axis.extent > 1]
        return Nest(
            tuple(replace(block, mathematics=mathematics) for block in blocks),
            tuple(replace(buffer, scope="stack") for buffer in buffers),
            tuple(steps),
        )

    def _order(self, block: Block) -> tuple[Axis, ...]:
        """A term of all points before the next, which makes vectors; of functions, of which the compiler merges equal calls only
        near each other, all terms of a point before the next."""
        return (*block.axes, *block.reduce_axes) if approximated(block.body) else (*block.reduce_axes, *block.axes)


def straight(algorithm: Algorithm, target: Target, threads: int) -> tuple[Algorithm, Sequence[StraightSketch]] | None:
    """The algorithm with each stage by itself, and its sketches. None of a large one, and of one that looks elements up."""
    stages = algorithm.expression.stages
    if sum(cost(stage) for stage in stages) > MOST:
        return None
    if any(found.gathered for stage in stages for found in accesses(stage, algorithm.shapes)):
        return None
    groups = tuple(TileGroup(anchor=stage, epilogue=None) for stage in stages)
    sketches = [StraightSketch(group, None, target, threads, algorithm.shapes, algorithm.dtypes) for group in groups]
    return replace(algorithm, groups=groups), sketches
