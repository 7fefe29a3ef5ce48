"""Knobs of the multistage sketch: the tile and its stages, and the order of tiles.

It takes the products of whole matrices that the persistent one takes, on GPUs from sm_80 on
that have no instructions of warpgroups, but for floats of 8 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from tuner.spaces.core.choice import Choice
from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.space import Config
from tuner.spaces.cuda.facts import ComputeUnit, KernelFacts
from tuner.spaces.cuda.limits import (
    OTHER_REGISTERS,
    Footprint,
    block_shared_bytes,
    covers,
)
from tuner.spaces.cuda.persistent import CudaPersistentNest, PersistentPlan, ProductShape
from tuner.spaces.cuda.persistent_knobs import persistent_shape
from tuner.spaces.cuda.shared_choices import bands_choice, block_choice
from tuner.spaces.cuda.sketch import CudaSketch
from tuner.spaces.program.multistage import MultistageProduct, stages_bytes, threads_of
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.persistent import Bands, PersistentTile, height_of, strip_columns
from tuner.spaces.rewrite.groups import TileGroup

WARPGROUPS, FRAGMENTS, PANELS, STAGES = (1, 2), (2, 1), (2, 1, 3, 4), (3, 4, 2, 5)
MAX_ACCUMULATORS = 128  # 32-bit registers of a thread


def multistage_shape(group: TileGroup, context: SpaceContext) -> ProductShape | None:
    """The parts that the axes of a group play, None where it is no product that the
    sketch takes."""
    shape = persistent_shape(group, context)
    if shape is None or shape.pixels is not None:
        return None
    return None if any(factor.is_summed_short for factor in shape.factors) else shape


class CudaMultistageNest(CudaPersistentNest):
    """The same blocks, computed by another kernel."""

    product = MultistageProduct


@dataclass(frozen=True)
class CudaMultistageSketch(CudaSketch[TileGroup]):
    """The multistage sketch of one group; `shape` says that it has one."""

    shape: ProductShape

    name = "multistage"

    # --- choices

    @cached_property
    def choices(self) -> tuple[Choice[Any], ...]:
        return (self.block, self.bands)

    @cached_property
    def block(self) -> Choice[PersistentTile]:
        """Tiles that fit a block; empty where none fits."""
        return block_choice(self.prefix, self._fitting())

    @cached_property
    def bands(self) -> Choice[Bands]:
        return bands_choice(self.prefix)

    def _fitting(self) -> Iterator[PersistentTile]:
        for warpgroups, fragments, panels, stages in product(WARPGROUPS, FRAGMENTS, PANELS, STAGES):
            tile = PersistentTile(
                consumers=warpgroups,
                fragments=fragments,
                panels=panels,
                alternating=False,
                stages=stages,
            )
            if self._is_useful(tile) and self.footprint(tile).fault is None:
                yield tile

    def _is_useful(self, tile: PersistentTile) -> bool:
        return (
            covers(height_of(self.shape.rows, None), tile.rows)
            and covers(self.shape.columns.extent, tile.columns)
            and tile.columns % strip_columns(self.group.output.dtype) == 0
            and tile.accumulators <= MAX_ACCUMULATORS
        )

    def footprint(self, tile: PersistentTile) -> Footprint:
        """What a block of this tile takes."""
        loaded = 4 * tile.fragments + 4  # of both operands, for one multiplication
        return Footprint(
            threads=(threads_of(tile),),
            registers=tile.accumulators + loaded + OTHER_REGISTERS,
            shared_bytes=stages_bytes(tile),
            most_shared_bytes=block_shared_bytes(self.context.target),
        )

    # --- meaning

    @cached_property
    def facts(self) -> KernelFacts:
        return KernelFacts(
            owner=self.prefix,
            group=self.group.name,
            unit=ComputeUnit.TENSOR_CORES,
            block=self.block,
            footprints=tuple(map(self.footprint, self.block.values)),
        )

    def nest(self, config: Config) -> Nest:
        plan = PersistentPlan(
            shape=self.shape, tile=self.block.of(config), bands=self.bands.of(config)
        )
        return CudaMultistageNest(self.group, plan, self.context).build()
