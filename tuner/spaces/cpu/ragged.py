"""Tiles of reductions over the places of compressed rows: one row at a time.

The conditions of a ragged range are the same for all lanes of a vector along another
axis, so the nest is that of any sum, with the loop over places cut to the row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from tuner.spaces.core.choice import choice
from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.core.space import Config
from tuner.spaces.cpu.arithmetic import TileValues
from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.facts import Unrolling
from tuner.spaces.cpu.register_tiles import register_tiles
from tuner.spaces.cpu.tile_choices import TileChoices
from tuner.spaces.cpu.tile_plan import Instruction
from tuner.spaces.cpu.tile_sketch import TileSketch
from tuner.spaces.cpu.tiled_stage import TiledStage
from tuner.spaces.program.marks import Parallel, ShareByPlaces
from tuner.spaces.program.nest import Nest
from tuner.spaces.rewrite.groups import TileGroup
from tuner.spaces.rewrite.stages import is_expensive
from tuner.workload.expression import Binary, RaggedRange, Read, ragged_range, reads

TASKS = 8  # of each thread: what one has more than another is then an eighth of a task
GATHERS = frozenset({"avx2", "fma"})  # features of CPUs that gather, and multiply and add at once


def is_ragged(group: TileGroup) -> bool:
    """Whether a group reduces over the places of rows."""
    return ragged_range(group.anchor) is not None


def ragged_sketches(group: TileGroup, context: SpaceContext) -> list[TileSketch]:
    """The sketch of one row at a time, vectorised along the output's last dense axis.

    Of sums without one there are sketches with vectors along the places. They gather what
    indices name, or load it one by one.
    """
    ragged = ragged_range(group.anchor)
    assert ragged is not None
    dense = [axis for axis in group.anchor.axes if axis.name != ragged.row and axis.extent >= 2]
    vector = dense[-1].name if dense else None
    stage = TiledStage(group=group, context=context, vector=vector)
    stages = [stage]
    if vector is None and _is_plain_sum(group):
        if _gathers_a_factor(ragged, context):
            loads = Instruction(reassociated=True, loads_elements=True)
            stages.append(replace(stage, instruction=loads))
        stages.append(replace(stage, instruction=Instruction(reassociated=True)))
    plain = [
        TileSketch(stage=each, arithmetic=RowArithmetic(ragged), copying=False) for each in stages
    ]
    if context.units == 1 or group.anchor.extents[ragged.row] < TASKS * context.units:
        return plain
    arithmetic = RowArithmetic(ragged, shares=True)
    return [
        *plain,
        *(SharedRows(stage=each, arithmetic=arithmetic, copying=False) for each in stages),
    ]


def _gathers_a_factor(ragged: RaggedRange, context: SpaceContext) -> bool:
    """Whether the terms are products of which one factor lies where indices say, and the CPU
    has an instruction for it."""
    match ragged.body:
        case Binary(op="mul", lhs=Read() as left, rhs=Read() as right):
            indices = (*left.indices, *right.indices)
            return (
                any(any(reads(index)) for index in indices) and set(context.isa.features) >= GATHERS
            )
    return False


def _is_plain_sum(group: TileGroup) -> bool:
    """Whether all that a group computes are floats' sums and products."""
    anchor, output = group.anchor, group.output
    is_costly = is_expensive(anchor.body) or is_expensive(output.body)
    return anchor.reducer == "sum" and "float" in anchor.accumulator and not is_costly


@dataclass(frozen=True, kw_only=True)
class SharedRows(TileSketch):
    """Rows one by one in the outermost loop, which threads share by places.

    A few long rows then do not keep one thread at work while the others wait.
    """

    @cached_property
    def choices(self) -> TileChoices:
        choices, row = super().choices, self._row
        owner = f"{self.group.name}.{self.name}"
        alone = choice(owner, KnobRole.CACHE_BLOCK, (1,), int, subject=row)
        ordered = {row, *self.stage.major_axes}  # before them stand axes of one iteration
        orders = [
            ((row, *(name for name in order if name != row)), stored)
            for order, stored in zip(
                choices.outer_order.values, choices.outer_order.stored, strict=True
            )
            if next(name for name in order if name in ordered) == row
        ]
        return replace(
            choices,
            cache_blocks={**choices.cache_blocks, row: alone},
            outer_order=replace(
                choices.outer_order,
                values=tuple(order for order, _ in orders),
                stored=tuple(stored for _, stored in orders),
            ),
        )

    @property
    def _row(self) -> str:
        ragged = ragged_range(self.group.anchor)
        assert ragged is not None
        return ragged.row

    def nest(self, config: Config) -> Nest:
        nest = super().nest(config)
        (parallel,) = (step for step in nest.steps if isinstance(step, Parallel))
        tasks = TASKS * self.stage.context.units
        return Nest(
            nest.blocks, nest.buffers, (*nest.steps, ShareByPlaces(loop=parallel.loop, tasks=tasks))
        )


@dataclass(frozen=True)
class RowArithmetic:
    """One multiply-add for each lane, and no tile along rows: their places differ."""

    ragged: RaggedRange
    shares: bool = False  # whether threads share the rows by places

    def name(self, stage: TiledStage) -> str:
        word = "shared" if self.shares else "ragged"
        axis = self.ragged.axis if stage.instruction.reassociated else stage.vector
        way = "_loads" if stage.instruction.loads_elements else ""
        return f"{word}_{axis}{way}" if axis else word

    def rate(self, stage: TiledStage) -> float:
        return 1.0

    def values(self, stage: TiledStage) -> TileValues:
        axes = stage.group.anchor.reduce_axes
        position = [axis.name for axis in axes].index(self.ragged.axis)
        return TileValues(
            # A row has few places: accumulators that hide no latency cost nothing.
            register_tiles=register_tiles(stage, undivided={self.ragged.row}, least=1),
            reduction_blocks=[stage.main_reduction.extent],
            unrollings=[Unrolling(position=position, factor=1)],
            copies=[(CopyMode.NONE,) for _ in stage.reads],
        )
