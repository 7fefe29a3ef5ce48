"""Quantities that several terms of the estimate share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tuner.cost_model.arrays import Floats, Mask
from tuner.cost_model.cpu.nests import Nests, NestTable
from tuner.cost_model.cpu.work import NestWork
from tuner.target.target import Target

LIBM_CYCLES = 35.0  # of one call of a transcendental function
POLYNOMIAL_CYCLES = 10.0  # of one vector of a transcendental function


@dataclass(frozen=True, kw_only=True)
class KernelCounts:
    """One group's nest under n configs, on a target. Arrays have shape (n,)."""

    table: NestTable
    work: NestWork
    target: Target

    @property
    def nest(self) -> Nests:
        """The loops of each config."""
        return self.work.nest

    # --- arithmetic

    @cached_property
    def fma_units(self) -> int:
        """Units that multiply and add vectors of this nest's length."""
        vector_bytes = self.work.lanes * self.table.dtype_bytes
        return self.table.isa.fma_units_of(vector_bytes)

    @cached_property
    def arithmetic(self) -> Floats:
        """Cycles of the multiply-adds at the full rate of all units."""
        peak = self.work.lanes * 2 * self.fma_units * self.table.facts.rate
        cycles: Floats = self.table.flops * self.work.overlap / peak
        return cycles

    @cached_property
    def multiply_adds(self) -> Floats:
        """Vector instructions of a body.

        A map without arithmetic still issues something for each vector.
        """
        table = self.table
        of_point = max(table.flops / max(table.axes.points * table.share, 1) / 2, 0.5)
        instructions: Floats = self.work.accumulators * of_point * self.work.steps_per_body
        return instructions

    @property
    def in_vectors(self) -> float:
        """1 where operands go to vector registers, 0 where they go to matrix registers."""
        return 0.0 if self.table.facts.loads_whole_rows else 1.0

    @property
    def reduces(self) -> float:
        """1 where the nest has a reduction, else 0."""
        return 1.0 if self.table.reductions else 0.0

    # --- accumulators

    @property
    def reduction_blocks(self) -> Floats:
        """Blocks that the reduction is cut into."""
        blocks: Floats = self.nest.extent[self.table.spatial]
        return blocks

    @cached_property
    def in_registers_between_blocks(self) -> Floats:
        """Share of the accumulators that stay in registers from one reduction block to the next.

        Where a cache block is a single tile, nothing comes between two blocks of its
        reduction. LLVM then keeps the sums beside those of the block, as far as there
        are registers for both. Between those of fused stages comes what they sum.
        """
        if self.table.facts.fusion is not None:
            return np.zeros(len(self.work.bodies), np.float32)
        spatial = self.table.spatial
        tiles = self.nest.extent[spatial + 1 : 2 * spatial + 1].prod(axis=0)
        free = self.target.vector_registers - self.work.registers_needed
        share: Floats = np.clip(free / self.work.accumulators, 0.0, 1.0) * (tiles == 1)
        return share

    @cached_property
    def lives(self) -> Floats:
        """Times that accumulators are set up and written back."""
        kept = self.in_registers_between_blocks
        lives: Floats = (
            self.work.lives * (1.0 - kept) + self.work.lives / self.reduction_blocks * kept
        )
        return lives

    # --- functions

    @property
    def libm_calls(self) -> Floats:
        """Calls of transcendental functions in the C library."""
        calls: Floats = self.work.transcendentals * ~self.nest.polynomial
        return calls

    @property
    def polynomial_vectors(self) -> Floats:
        """Vectors for which a polynomial is evaluated."""
        vectors: Floats = self.work.transcendentals / self.work.lanes * self.nest.polynomial
        return vectors

    # --- memory

    @cached_property
    def _divided(self) -> Floats:
        """1 where the reduction has several blocks, so that sums are written and read again."""
        divided: Floats = ((self.reduction_blocks > 1) & (self.table.reductions > 0)).astype(
            np.float32
        )
        return divided

    @property
    def written_once(self) -> Floats:
        """1 where each result is written once, through the caches."""
        once: Floats = (1.0 - self._divided) * ~self.nest.non_temporal
        return once

    @property
    def written_past_caches(self) -> Floats:
        """1 where each result is written once, by non-temporal stores."""
        past: Floats = (1.0 - self._divided) * self.nest.non_temporal
        return past

    def written(self, cache: int) -> Floats:
        """Bytes of the output that miss cache number 0, 1 or 2."""
        missed: Floats = self.work.memory.missed[cache][-1]
        return missed

    def reloaded_sums(self, cache: int) -> Floats:
        """Bytes of sums that come back into the cache for the next reduction block."""
        reloaded: Floats = self.written(cache) * self._divided
        return reloaded

    def read(self, cache: int) -> Floats:
        """Bytes that come in from beyond the cache.

        A written line comes in first, unless non-temporal stores bypass the caches.
        """
        missed = self.work.memory.missed[cache]
        brought: Floats = missed.sum(axis=0) - missed[-1] * self.written_past_caches
        return brought

    @property
    def prefetches(self) -> Mask:
        """Whether the nest prefetches anything."""
        prefetches: Mask = self.nest.prefetch_distance > 0
        return prefetches

    @cached_property
    def hidden_by_prefetching(self) -> Floats:
        """Cycles of computing during which prefetched bytes come in."""
        cycles: Floats = (
            self.arithmetic
            + self.libm_calls * LIBM_CYCLES
            + self.polynomial_vectors * POLYNOMIAL_CYCLES
        ) * self.prefetches
        return cycles
