"""A product as a kernel whose warps copy asynchronously into several stages of permuted
shared memory, and multiply what came before (sm_80 and later).

A block computes one tile. Its threads and their sums are those of a persistent product's
consumers, of 64 rows each fragment, and its stages lie as that one's do. Terms: PTX ISA,
"cp.async", "ldmatrix", "mma".
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.spaces.program.persistent import (
    PANEL_BYTES,
    WARPGROUP,
    PersistentProduct,
    PersistentTile,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MultistageProduct(PersistentProduct):
    """The whole kernel."""

    @property
    def grid(self) -> int:
        """Blocks, one for each tile."""
        return self.tiles

    @property
    def threads(self) -> int:
        """Of a block; all of them copy and multiply."""
        return threads_of(self.tile)

    @property
    def shared_bytes(self) -> int:
        return stages_bytes(self.tile)


def threads_of(tile: PersistentTile) -> int:
    return WARPGROUP * tile.consumers


def stages_bytes(tile: PersistentTile) -> int:
    """Shared memory of a block: its stages, in whose place strips of the output come."""
    return max(tile.stages * tile.stage_bytes, tile.consumers * PANEL_BYTES)
