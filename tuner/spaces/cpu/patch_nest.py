"""The nest of a map that picks by places in a patch: all elements of a patch are computed
by one unrolled body, in which the compiler finds equal reads and sums once.

Reads that may be outside of their tensor come first, into registers: the compiler would
not join them across their conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.spaces.cpu.nest_parts import NestParts
from tuner.spaces.cpu.tile_loops import TileLoops
from tuner.spaces.cpu.tile_plan import TilePlan
from tuner.spaces.program.loops import Level, LoopId, loops_of
from tuner.spaces.program.marks import Unroll, Vectorize
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import Buffer, ComputeAt, Reorder
from tuner.spaces.rewrite.access import with_explicit_padding
from tuner.spaces.rewrite.patches import Patches
from tuner.workload.dtypes import DType
from tuner.workload.expression import (
    Axis,
    Read,
    Scalar,
    Select,
    Var,
    children,
    reads,
    rewrite,
    substitute,
    walk,
)


@dataclass(frozen=True)
class PatchNest:
    """Builds the nest of one map under one plan, whose register tiles are patches."""

    patches: Patches
    plan: TilePlan
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, DType]

    def build(self) -> Nest:
        """All blocks, buffers and steps."""
        stage, loops = self.patches.stage, self._loops
        parts = NestParts(math_functions=self.plan.math_functions, threads=self.plan.threads)
        plain = with_explicit_padding(stage.body, self.shapes, stage.extents)
        body = substitute(plain, loops.indices)
        loads = self._loads(body)
        value = rewrite(body, loads.get)
        inside = tuple(substitute(test, loops.indices) for test in self.patches.inside)
        producers = [read.tensor for read in loads.values()]
        for node, read in loads.items():
            (source,) = reads(node)
            self._keep(parts, read, self.dtypes[source.tensor], node)
        if inside:
            # Computed without conditions, so that all elements share what they have in common.
            patch = Read(f"{stage.name}_patch", loops.element)
            self._keep(parts, patch, stage.dtype, value)
            producers.append(patch.tensor)
            value = patch
        parts.compute(
            stage.name,
            loops.spatial,
            [substitute(index, loops.indices) for index in self.patches.output],
            value,
            when=inside,
        )
        parts.steps.append(Reorder(loops=loops_of(stage.name, loops.spatial)))
        below = LoopId.of(stage.name, loops.inner[-1])
        for name in reversed(producers):
            block = next(block for block in parts.blocks if block.name == name)
            parts.steps.append(ComputeAt(block=name, loop=below))
            self._mark(parts, name, block.axes)
        self._mark(parts, stage.name, loops.spatial)
        parts.share_loops(stage.name, loops.outer)
        return parts.nest()

    @property
    def _loops(self) -> TileLoops:
        return TileLoops(self.plan)

    def _loads(self, body: Scalar) -> dict[Scalar, Read]:
        """Padded reads with their conditions, the same whatever the place in a patch.

        Each with the registers that it goes to.
        """
        places = {Level.REGISTER.name_of(name) for name in self.patches.places}
        loads: dict[Scalar, Read] = {}

        def collect(node: Scalar) -> None:
            names = {part.name for part in walk(node) if isinstance(part, Var)}
            if (
                isinstance(node, Select)
                and names
                and not names & places
                and len(list(reads(node))) == 1
            ):
                if node not in loads:
                    axes = (Var(axis.name) for axis in self._loops.spatial if axis.name in names)
                    name = f"{self.patches.stage.name}_in{len(loads)}"
                    loads[node] = Read(name, tuple(axes))
                return
            for child in children(node):
                collect(child)

        collect(body)
        return loads

    def _keep(self, parts: NestParts, kept: Read, dtype: DType, value: Scalar) -> None:
        """A block whose values stay in registers."""
        extents = {axis.name: axis.extent for axis in self._loops.spatial}
        axes = [
            Axis(name=index.name, extent=extents[index.name])
            for index in kept.indices
            if isinstance(index, Var)
        ]
        shape = tuple(axis.extent for axis in axes)
        parts.buffers.append(Buffer(name=kept.tensor, shape=shape, dtype=dtype, scope="stack"))
        parts.compute(kept.tensor, axes, kept.indices, value)

    def _mark(self, parts: NestParts, block: str, axes: Sequence[Axis]) -> None:
        """Unrolls the loops of a patch, and vectorises the lanes."""
        for axis in self._loops.register:
            if axis not in axes:
                continue
            loop = LoopId.of(block, axis)
            if axis.name == self._loops.vector_lane:
                parts.steps.append(Vectorize(loop=loop))
            elif axis.extent > 1:
                parts.steps.append(Unroll(loop=loop))
