"""The loops of a tile nest, level by level, and the marks on the innermost ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tuner.spaces.cpu.tile_plan import TilePlan
from tuner.spaces.program.loops import Level, LoopId
from tuner.spaces.program.marks import (
    AmxTile,
    DotProduct,
    HalfByteProduct,
    MatrixProduct,
    TableLookup,
    Unroll,
    Vectorize,
)
from tuner.spaces.program.program import Fuse, Step
from tuner.workload.expression import Axis, Scalar, Var


@dataclass(frozen=True)
class TileLoops:
    """Loops of each level under one plan, outermost first."""

    plan: TilePlan

    @property
    def outer(self) -> list[Axis]:
        """Over cache blocks."""
        return [self.plan.tiled(name).outer for name in self.plan.outer_order]

    @property
    def inner(self) -> list[Axis]:
        """Over register tiles of a cache block."""
        return [self.plan.tiled(name).inner for name in self.plan.inner_order]

    @cached_property
    def register(self) -> list[Axis]:
        """Loops of a register tile, as its accumulators lie: those of one vector last."""
        paired = self.plan.instruction.paired
        if paired is None:
            return self.stored
        *others, lanes = self.stored
        rows = Level.VECTOR_LANE.axis(paired, self.plan.tiled(paired).lanes)
        return [*(axis for axis in others if axis != rows), rows, lanes]

    @cached_property
    def stored(self) -> list[Axis]:
        """The same as results are stored: the vectorised axis last."""
        plain = [
            axis
            for tiled in self.plan.spatial
            if tiled.axis.name != self.plan.vector
            for axis in tiled.register
        ]
        if self.plan.vector is None:
            return plain
        return [*plain, *self.plan.tiled(self.plan.vector).register]

    @property
    def spatial(self) -> list[Axis]:
        """Over cache blocks, register tiles and the elements of a tile."""
        return [*self.outer, *self.inner, *self.register]

    @property
    def element(self) -> tuple[Var, ...]:
        """The element of the nest's accumulators that the spatial loops are at."""
        return tuple(Var(axis.name) for axis in self.spatial)

    @property
    def reduction_blocks(self) -> list[Axis]:
        """Over blocks of the reduction, where it has several."""
        blocked = self.plan.blocked
        return [] if blocked is None else [blocked.outer]

    @property
    def reduction(self) -> list[Axis]:
        """Over the iterations of a reduction block, unrolled ones last."""
        steps = [
            axis for axis in self.plan.reduction if axis.axis.name not in self.plan.instruction.axes
        ]
        return [axis.inner for axis in steps] + [axis.unrolled for axis in steps if axis.unroll > 1]

    @property
    def instruction(self) -> list[Axis]:
        """Below the lanes: what one instruction takes as a whole."""
        return [
            axis.inner
            for axis in self.plan.reduction
            if axis.axis.name in self.plan.instruction.axes
        ]

    @cached_property
    def indices(self) -> dict[str, Scalar]:
        """The index of each axis of the stage, in the loops of the nest."""
        spatial = {tiled.axis.name: tiled.index for tiled in self.plan.spatial}
        return spatial | {axis.axis.name: axis.index for axis in self.plan.reduction}

    @property
    def vector_lane(self) -> str:
        """The name of the loop over the vector's lanes; of no loop where there is no vector."""
        return Level.VECTOR_LANE.name_of(self.plan.vector or "")

    @property
    def has_mergeable_vectors(self) -> bool:
        """Whether a tile has adjacent vectors that can become one."""
        register = self.register
        return register[-1].name == self.vector_lane and register[-2].extent in (2, 4)

    def innermost_marks(
        self,
        block: str,
        *,
        unrolled: bool = True,
        dot: bool = False,
        stored: bool = False,
        merged: bool = False,
        initial: bool = False,
    ) -> list[Step]:
        """Unrolls the register tile and vectorises its lanes.

        `dot` gives the lanes, and what each of them sums, to one instruction. `stored`
        says that the loops have the order in which results are stored. `merged` makes one
        vector of adjacent ones where the compiler can halve it down to registers: it then
        computes these alternately, which hides the latency of a long chain, and loads each
        constant once for all. Of accumulators two by two the rows, or the adjacent
        vectors of a row that is stored, are always merged.
        """
        steps: list[Step] = []
        register = self.stored if stored else self.register
        paired = self.plan.instruction.paired is not None
        if paired and dot:
            # The initialisation that is split off has the mark too.
            steps += [] if initial else [MatrixProduct(loop=LoopId.of(block, register[-2]))]
            register = register[:-2]
        elif paired or (merged and self.has_mergeable_vectors):
            whole = LoopId(block, Level.VECTOR.name_of(str(self.plan.vector)), initial)
            parts = tuple(LoopId.of(block, axis) for axis in register[-2:])
            # The initialisation that is split off has the merged loop.
            steps += [] if initial else [Fuse(loops=parts, into=whole)]
            steps.append(Vectorize(loop=whole))
            register = register[:-2]
        for axis in register:
            loop = LoopId.of(block, axis, initial=initial)
            if axis.name == self.vector_lane:
                marked = dot and not initial
                steps.append(self._instruction_mark(loop) if marked else Vectorize(loop=loop))
            elif unrolled and axis.extent > 1:
                steps.append(Unroll(loop=loop))
        return steps

    def _instruction_mark(self, loop: LoopId) -> Step:
        instruction = self.plan.instruction
        if instruction.table:
            return TableLookup(loop=loop, table=instruction.table)
        if instruction.takes_halves:
            return HalfByteProduct(loop=loop)
        return DotProduct(loop=loop)

    def amx_tile(self, block: str) -> AmxTile:
        """The loops that matrix registers replace: a step of the reduction and its outermost."""
        plan = self.plan
        assert plan.instruction.register_rows is not None and plan.vector is not None
        vectors, vector_lanes = plan.tiled(plan.vector).register
        words, elements = self.instruction
        return AmxTile(
            loop=LoopId.of(block, self.reduction[0]),
            rows=LoopId.of(block, plan.tiled(plan.instruction.register_rows).register[0]),
            vectors=LoopId.of(block, vectors),
            vector_lanes=LoopId.of(block, vector_lanes),
            words=LoopId.of(block, words),
            elements=LoopId.of(block, elements),
        )
