"""The nest of a reduction whose terms name their rows.

Loops, outermost first: blocks of rows, tiles along a row, the terms, the rows of a block,
of which `tuner.lowering.passes.ragged_loops` leaves the one that a term names, and the
tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.spaces.cpu.nest_parts import NestParts
from tuner.spaces.program.loops import Level, LoopId, loops_of
from tuner.spaces.program.marks import Unroll, Vectorize
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import (
    Buffer,
    DecomposeReduction,
    MathFunctions,
    Reorder,
    ReverseComputeAt,
)
from tuner.spaces.program.tiles import TiledAxis, add, constant, times
from tuner.spaces.rewrite.access import with_explicit_padding
from tuner.spaces.rewrite.groups import TileGroup, replace_reads
from tuner.workload.expression import Axis, Binary, Read, Scalar, Scattering, Var, substitute


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterPlan:
    """A config of the sketch, decoded."""

    rows: int  # of a block
    tile: int  # elements of the vectorised axis
    vector: str | None
    lanes: int
    math_functions: MathFunctions
    threads: int


class ScatterNest:
    """Builds the nest of one group under one plan."""

    def __init__(
        self,
        group: TileGroup,
        scattered: Scattering,
        plan: ScatterPlan,
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        self._group, self._plan, self._shapes = group, plan, shapes
        self._scattered = scattered
        self._parts = NestParts(math_functions=plan.math_functions, threads=plan.threads)
        anchor, row = group.anchor, scattered.row
        self._rows = anchor.extents[row]
        self._row_block = Level.BLOCK.axis(row, -(-self._rows // plan.rows))
        self._row = Level.TILE.axis(row, plan.rows)
        self._tiled = {
            axis.name: TiledAxis(
                axis=axis,
                tile=plan.tile if axis.name == plan.vector else 1,
                lanes=plan.lanes if axis.name == plan.vector else 1,
            )
            for axis in anchor.axes
            if axis.name != row
        }
        # Blocks of rows lie side by side in the output, or else in a buffer of their own.
        self._in_place = (
            group.epilogue is None
            and anchor.accumulator == anchor.dtype
            and self._rows % plan.rows == 0
        )
        self._sums = group.name if self._in_place else f"{group.name}_acc"

    def build(self) -> Nest:
        """All blocks, buffers and steps."""
        anchor, parts, sums = self._group.anchor, self._parts, self._sums
        element = self._output_indices if self._in_place else [Var(a.name) for a in self._spatial]
        body = with_explicit_padding(self._scattered.body, self._shapes, anchor.extents)
        condition = substitute(self._scattered.condition, self._indices)
        parts.compute(
            sums,
            self._spatial,
            element,
            substitute(body, self._indices),
            reduce_axes=anchor.reduce_axes,
            reducer=anchor.reducer,
            when=(condition,),
        )
        order = [*self._outer, *anchor.reduce_axes, *self._around, self._row, *self._within]
        parts.steps.append(Reorder(loops=loops_of(sums, order)))
        if not self._in_place:
            self._write_back()
        self._mark(sums)
        parts.share_loops(sums, [self._row_block])
        first = LoopId.of(sums, anchor.reduce_axes[0])
        parts.steps.append(DecomposeReduction(block=sums, loop=first))
        self._mark(sums, initial=True)
        return parts.nest()

    def _write_back(self) -> None:
        """Stores the rows of a block, with the epilogue done on them."""
        anchor, output, parts = self._group.anchor, self._group.output, self._parts
        shape = tuple(axis.extent for axis in self._spatial)
        parts.buffers.append(Buffer(name=self._sums, shape=shape, dtype=anchor.accumulator))
        body: Scalar = Read(self._sums, tuple(Var(axis.name) for axis in self._spatial))
        if self._group.epilogue is not None:
            plain = with_explicit_padding(output.body, self._shapes, anchor.extents)
            body = replace_reads(substitute(plain, self._indices), {anchor.name: body})
        row = self._indices[self._scattered.row]
        exists = Binary("lt", row, constant(self._rows))
        parts.compute(
            output.name,
            self._spatial,
            [self._indices[axis.name] for axis in output.axes],
            body,
            when=(exists,) if self._rows % self._plan.rows else (),
        )
        below = LoopId.of(self._sums, self._outer[-1])
        parts.steps.append(ReverseComputeAt(block=output.name, loop=below))
        inside = [*self._around, self._row, *self._within]
        parts.steps.append(Reorder(loops=loops_of(output.name, inside)))
        self._mark(output.name)

    # --- loops

    @property
    def _spatial(self) -> list[Axis]:
        return [*self._outer, *self._around, self._row, *self._within]

    @property
    def _outer(self) -> list[Axis]:
        """Blocks of rows and tiles along a row; each goes over all terms."""
        vector = self._plan.vector
        return [self._row_block, *([self._tiled[vector].outer] if vector else [])]

    @property
    def _around(self) -> list[Axis]:
        """Axes that the index depends on."""
        along = self._scattered.along
        return [tiled.outer for name, tiled in self._tiled.items() if name in along]

    @property
    def _within(self) -> list[Axis]:
        """What one term changes of its row, the vector's lanes last."""
        vector, along = self._plan.vector, self._scattered.along
        plain = [tiled.outer for name, tiled in self._tiled.items() if name not in (vector, *along)]
        return [*plain, *(self._tiled[vector].register if vector else ())]

    @property
    def _indices(self) -> dict[str, Scalar]:
        row = add(times(Var(self._row_block.name), self._plan.rows), Var(self._row.name))
        return {
            self._scattered.row: row,
            **{name: tiled.index for name, tiled in self._tiled.items()},
        }

    @property
    def _output_indices(self) -> list[Scalar]:
        return [self._indices[axis.name] for axis in self._group.output.axes]

    def _mark(self, block: str, *, initial: bool = False) -> None:
        """Unrolls the vectors of a tile and vectorises their lanes."""
        if self._plan.vector is None:
            return
        for axis in self._tiled[self._plan.vector].register:
            loop = LoopId.of(block, axis, initial=initial)
            if Level.VECTOR_LANE.holds(axis.name):
                self._parts.steps.append(Vectorize(loop=loop))
            elif axis.extent > 1:
                self._parts.steps.append(Unroll(loop=loop))
