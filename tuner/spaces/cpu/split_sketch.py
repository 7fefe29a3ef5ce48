"""The split sketch of CPUs: single rows that stream by, in parts that threads share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
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
from tuner.spaces.cpu.split_nest import SplitNest
from tuner.spaces.cpu.split_plan import SplitPlan
from tuner.spaces.cpu.store_mode import StoreMode
from tuner.spaces.cpu.stream_sketch import counted_stages
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import MathFunctions
from tuner.spaces.rewrite.access import access, accesses
from tuner.spaces.rewrite.predicates import live_fraction
from tuner.spaces.rewrite.stream_group import StreamGroup
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import reads

POINTS = (4, 8, 2, 1)  # of the streamed axis whose products are in registers at a time
MAX_VECTORS = 8  # of columns in registers
BLOCKS = (128, 64, 256, 512)  # points of the streamed axis
TASKS = (1, 2, 4)  # of each thread, which parts of rows make
UNROLLINGS = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class Parts:
    """How a row is divided."""

    block: int  # points that are computed before they are summed
    count: int  # parts of whole blocks


@dataclass(frozen=True)
class SplitSketch:
    """The split sketch of one group."""

    group: StreamGroup
    context: SpaceContext

    @property
    def name(self) -> str:
        return "split"

    @property
    def knobs(self) -> tuple[Knob, ...]:
        choices: tuple[Choice[Any], ...] = (
            self.tile,
            self.parts,
            self.unrolling,
            self.math_functions,
        )
        return open_knobs(choices)

    @property
    def lanes(self) -> int:
        """Elements of a vector along the streamed axis."""
        return _fitting(self._most_lanes, self.group.stream.extent)

    @property
    def _most_lanes(self) -> int:
        return self.context.target.vector_bytes // DTYPE_BYTES[self.group.dtype]

    @property
    def column_lanes(self) -> int:
        """Elements of a vector of columns; a power of two that divides them."""
        lanes = self._most_lanes
        while self.group.columns[-1].extent % lanes:
            lanes //= 2
        return lanes

    @property
    def sum_lanes(self) -> int:
        """Elements of a vector along the product's last sum, 0 where that has none: where an
        operand is not contiguous along it, or vectors do not divide it."""
        product, lanes = self.group.product, self.lanes
        if product is None or lanes < 4 or product.reduce_axes[-1].extent % lanes:
            return 0
        last = product.reduce_axes[-1].name
        for read in reads(product.body):
            moved = access(read, self.context.shapes[read.tensor], product.extents)
            if last in moved.axes and (moved.padded or moved.gathered or moved.stride(last) != 1):
                return 0
        return lanes

    # --- choices

    @property
    def _owner(self) -> str:
        return f"{self.group.name}.{self.name}"

    @cached_property
    def tile(self) -> Choice[tuple[int, ...]]:
        """(points of the streamed axis, columns) in registers."""
        lanes = self.column_lanes
        points = [count for count in POINTS if count <= self.lanes] if self.sum_lanes else [1]
        most = min(self.group.columns[-1].extent // lanes, MAX_VECTORS)
        tiles = [(count, vectors * lanes) for count in points for vectors in range(most, 0, -1)]
        return choice(self._owner, KnobRole.REGISTER_TILE, tiles, tuple)

    @cached_property
    def parts(self) -> Choice[Parts]:
        """Blocks of the streamed axis, and parts of a row."""
        extent, threads = self.group.stream.extent, self.context.units
        rows = prod(axis.extent for axis in self.group.rows)
        counts = {1} if threads == 1 else {1, *(-(-each * threads // rows) for each in TASKS)}
        values = [
            Parts(block, count)
            for block in dict.fromkeys(min(block, extent) for block in BLOCKS)
            for count in sorted(counts, reverse=True)
            if count <= extent // block
        ]
        return choice(
            self._owner,
            KnobRole.REDUCTION_BLOCK,
            values,
            lambda value: (value.block, value.count),
        )

    @cached_property
    def unrolling(self) -> Choice[Unrolling]:
        """Iterations of the innermost loops."""
        return unrolling_choice(self._owner, UNROLLINGS)

    @cached_property
    def math_functions(self) -> Choice[MathFunctions]:
        return math_functions_choice(self._owner)

    # --- for the cost model

    @cached_property
    def facts(self) -> LoopNestFacts:
        """As a sum with columns, beside which the product and the exponentials are computed."""
        group, stages = self.group, counted_stages(self.group)
        spatial = (*group.rows, *group.columns)
        names = tuple(axis.name for axis in spatial)
        blocks = Choice(
            owner=self._owner,
            role=KnobRole.REDUCTION_BLOCK,
            values=tuple(parts.block for parts in self.parts.values),
            stored=self.parts.stored,
        )
        return LoopNestFacts(
            context=self.context,
            stages=stages,
            epilogue=None,
            spatial=spatial,
            reduction=(group.stream,),
            vector=group.columns[-1].name,
            lanes=self.column_lanes,
            tiled=("", group.columns[-1].name),
            register_tile=self.tile,
            outer_order=fixed_choice(self._owner, KnobRole.OUTER_ORDER, names),
            inner_order=fixed_choice(self._owner, KnobRole.INNER_ORDER, names),
            reduction_block=blocks,
            unrolling=self.unrolling,
            reads=tuple(
                {
                    read.read: read
                    for stage in stages
                    for read in accesses(stage, self.context.shapes)
                }.values()
            ),
            prefetch=fixed_choice(self._owner, KnobRole.PREFETCH, 0),
            store_mode=fixed_choice(self._owner, KnobRole.STORE_MODE, StoreMode.CACHED),
            math_functions=self.math_functions,
            computed_share=live_fraction(stages[-1], group.live_conditions),
        )

    # --- the nest

    def nest(self, config: Config) -> Nest:
        return SplitNest(self.plan(config), self.context.shapes).build()

    def plan(self, config: Config) -> SplitPlan:
        """The config decoded."""
        points, columns = self.tile.of(config)
        parts = self.parts.of(config)
        return SplitPlan(
            group=self.group,
            lanes=self.lanes,
            sum_lanes=self.sum_lanes,
            column_lanes=self.column_lanes,
            points=points,
            vectors=columns // self.column_lanes,
            block=parts.block,
            parts=parts.count,
            unroll=self.unrolling.of(config).factor,
            math_functions=self.math_functions.of(config),
            threads=self.context.units,
        )


def split_sketch(group: StreamGroup, context: SpaceContext) -> SplitSketch | None:
    """The split sketch of a group; None where enough rows to fill vectors share their columns."""
    lanes = context.target.vector_bytes // DTYPE_BYTES[group.dtype]
    if prod(axis.extent for axis in group.shared_rows) >= lanes:
        return None
    return SplitSketch(group, context)


def _fitting(lanes: int, extent: int) -> int:
    """So many lanes, or fewer where there are fewer elements; a power of two."""
    while lanes > extent:
        lanes //= 2
    return lanes
