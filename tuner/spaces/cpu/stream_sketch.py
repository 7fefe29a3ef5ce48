"""The stream sketch of CPUs: reductions that read rows part by part, as one nest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tuner.spaces.core.choice import Choice, choice, open_knobs
from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.core.space import Config, Knob
from tuner.spaces.cpu.facts import LoopNestFacts, Unrolling
from tuner.spaces.cpu.shared_choices import (
    fixed_choice,
    math_functions_choice,
    unrolling_choice,
)
from tuner.spaces.cpu.store_mode import StoreMode
from tuner.spaces.cpu.stream_nest import StreamNest
from tuner.spaces.cpu.stream_plan import StreamPlan
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import MathFunctions
from tuner.spaces.rewrite.access import accesses
from tuner.spaces.rewrite.predicates import live_fraction
from tuner.spaces.rewrite.stream_group import StreamGroup
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Axis, Binary, Read, Scalar, Stage, Unary, Var, rewrite

MAX_VECTORS = 6  # of rows in a tile
MAX_POINTS = 12  # of the streamed axis, and columns, in a register tile
# Registers beside the accumulators and one operand for each vector of rows.
BROADCASTS = 1
BLOCKS = (32, 64, 128, 256, 512)  # points of the streamed axis
UNROLLINGS = (1, 2, 4)


@dataclass(frozen=True)
class StreamSketch:
    """The stream sketch of one group; `vector` is the axis of the rows that vectors go along."""

    group: StreamGroup
    context: SpaceContext
    vector: Axis

    @property
    def name(self) -> str:
        return "stream"

    @property
    def knobs(self) -> tuple[Knob, ...]:
        choices: tuple[Choice[Any], ...] = (
            self.tile,
            self.block,
            self.unrolling,
            self.math_functions,
        )
        return open_knobs(choices)

    @property
    def lanes(self) -> int:
        """Elements of a vector, fewer where there are fewer rows."""
        lanes = self.context.target.vector_bytes // DTYPE_BYTES[self.group.dtype]
        while lanes > self.vector.extent:
            lanes //= 2
        return lanes

    # --- choices

    @property
    def _owner(self) -> str:
        return f"{self.group.name}.{self.name}"

    @cached_property
    def tile(self) -> Choice[tuple[int, ...]]:
        """(rows, points of the streamed axis, columns) in registers."""
        registers = self.context.target.vector_registers
        most = range(1, MAX_POINTS + 1)
        points = [count for count in reversed(most) if count <= self.group.stream.extent]
        columns = [count for count in reversed(most) if count <= self.group.columns[-1].extent]
        tiles = [
            (vectors * self.lanes, point, column)
            for vectors in range(MAX_VECTORS, 0, -1)
            if vectors * self.lanes <= self.vector.extent
            for point in points
            for column in columns
            if vectors * (max(point, column) + 1) + BROADCASTS <= registers
        ]
        least = min(8, max(_accumulators(tile, self.lanes) for tile in tiles))
        kept = [tile for tile in tiles if _accumulators(tile, self.lanes) >= least]
        return choice(self._owner, KnobRole.REGISTER_TILE, kept, tuple)

    @cached_property
    def block(self) -> Choice[int]:
        """Points of the streamed axis that are computed before they are summed."""
        extent = self.group.stream.extent
        values = sorted({min(block, extent) for block in BLOCKS})
        return choice(self._owner, KnobRole.REDUCTION_BLOCK, values, int)

    @cached_property
    def unrolling(self) -> Choice[Unrolling]:
        """Iterations of both products' innermost loops."""
        return unrolling_choice(self._owner, UNROLLINGS)

    @cached_property
    def math_functions(self) -> Choice[MathFunctions]:
        return math_functions_choice(self._owner)

    # --- for the cost model

    @cached_property
    def facts(self) -> LoopNestFacts:
        """As a sum with columns, beside which the product and the exponentials are computed."""
        group = self.group
        spatial = (*group.rows, *group.columns)
        names = tuple(axis.name for axis in spatial)
        stages = counted_stages(group)
        reads_of_stages = {
            read.read: read for stage in stages for read in accesses(stage, self.context.shapes)
        }
        return LoopNestFacts(
            context=self.context,
            stages=stages,
            epilogue=None,
            spatial=spatial,
            reduction=(group.stream,),
            vector=self.vector.name,
            lanes=self.lanes,
            tiled=(self.vector.name, "", group.columns[-1].name),
            register_tile=self.tile,
            outer_order=fixed_choice(self._owner, KnobRole.OUTER_ORDER, names),
            inner_order=fixed_choice(self._owner, KnobRole.INNER_ORDER, names),
            reduction_block=self.block,
            unrolling=self.unrolling,
            reads=tuple(reads_of_stages.values()),
            prefetch=fixed_choice(self._owner, KnobRole.PREFETCH, 0),
            store_mode=fixed_choice(self._owner, KnobRole.STORE_MODE, StoreMode.CACHED),
            math_functions=self.math_functions,
            computed_share=live_fraction(stages[-1], group.live_conditions),
        )

    # --- the nest

    def nest(self, config: Config) -> Nest:
        return StreamNest(self.plan(config), self.context.shapes, self.context.dtypes).build()

    def plan(self, config: Config) -> StreamPlan:
        """The config decoded."""
        rows, points, columns = self.tile.of(config)
        return StreamPlan(
            group=self.group,
            vector=self.vector,
            lanes=self.lanes,
            vectors=rows // self.lanes,
            points=points,
            columns=columns,
            block=self.block.of(config),
            unroll=self.unrolling.of(config).factor,
            math_functions=self.math_functions.of(config),
            threads=self.context.units,
        )


def stream_sketch(group: StreamGroup, context: SpaceContext) -> StreamSketch | None:
    """The stream sketch of a group; None where it has a single row for each of its operands.

    Vectors go along the longest axis of the rows along which no operand moves that moves
    along the streamed axis: each element of those is used by all lanes.
    """
    shared = group.shared_rows
    if not shared:
        return None
    return StreamSketch(group, context, max(shared, key=lambda axis: axis.extent))


def counted_stages(group: StreamGroup) -> tuple[Stage, ...]:
    """The sum with columns, the product, and the exponentials, without what is theirs."""
    last = group.sums[-1]
    points = (*group.rows, group.stream)
    weight = Stage(
        name=group.peak,
        axes=points,
        body=Unary("exp", _without(group.value, group.product)),
        dtype=group.dtype,
    )
    factor: Scalar = Unary("neg", Var(group.stream.name))
    summed = Stage(
        name=last.name,
        axes=(*group.rows, *last.columns),
        reduce_axes=(group.stream,),
        reducer="sum",
        accumulator=group.dtype,
        body=Binary("mul", last.factor or factor, Var(group.stream.name)),
        dtype=group.dtype,
    )
    return (summed, *([] if group.product is None else [group.product]), weight)


def _accumulators(tile: tuple[int, int, int], lanes: int) -> int:
    rows, points, columns = tile
    return rows // lanes * min(points, columns)


def _without(value: Scalar, product: Stage | None) -> Scalar:
    """The value with the streamed product, which is not read from memory, as a constant."""
    if product is None:
        return value
    return rewrite(
        value,
        lambda node: (
            Var(product.axes[-1].name)
            if isinstance(node, Read) and node.tensor == product.name
            else None
        ),
    )
