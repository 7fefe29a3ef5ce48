"""Stream-K: tiles of a product whose depth several blocks share, so that all blocks have as
much to do where tiles are no multiple of them.

Osama, Merrill, Cecka, Garland & Owens, "Stream-K: Work-centric Parallel Decomposition for
Dense Matrix-Matrix Multiplication on the GPU" (2023). Whole tiles come first, as many waves
as leave between one and two tiles a block. The steps of the others, one tile's behind
another's, are dealt out evenly: each block gets a run of them. A block that has a part of a
tile leaves its sums in memory, and another kernel adds the parts up.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST_STEPS = 4  # of a block, which first has to fill its stages
MOST_BUSY = 0.85  # share of the blocks' time above which nothing is shared


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamK:
    """Which steps of which tiles are shared."""

    tiles: int
    steps: int  # of each tile
    blocks: int  # that run at a time

    @property
    def is_useful(self) -> bool:
        """Whether blocks would stand idle otherwise, and have enough to do then."""
        waves = -(-self.tiles // self.blocks)
        busy = self.tiles / (waves * self.blocks)
        return busy <= MOST_BUSY and self.units >= LEAST_STEPS * self.blocks

    @property
    def waves(self) -> int:
        """Whole tiles that each block has first."""
        return max(self.tiles // self.blocks - 1, 0)

    @property
    def shared(self) -> int:
        """Tiles that are shared, the last ones."""
        return self.tiles - self.waves * self.blocks

    @property
    def units(self) -> int:
        """Steps of the shared tiles."""
        return self.shared * self.steps

    @property
    def parts(self) -> int:
        """Places in memory for sums: of a block's first tile of those and of its last."""
        return 2 * self.blocks
