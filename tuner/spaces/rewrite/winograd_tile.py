"""The tiles of Winograd's convolutions: how many outputs, of what window.

Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks" (2016), section 4.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod

from tuner.spaces.rewrite.cook_toom import Transforms, transforms

LEAST_EXTENT = 4  # outputs in each direction; of fewer the transforms are most of the work
SUFFIX = "win"  # of names of rewritten stages, whose knobs differ from the original's


@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradTile:
    """One algorithm of the family: the tile's outputs and the window, in each direction."""

    outputs: int
    window: int
    directions: int  # 1 or 2

    @property
    def inputs(self) -> int:
        """Of a tile in each direction, which is how often it multiplies."""
        return self.outputs + self.window - 1

    @property
    def saving(self) -> float:
        """Multiplications of the sum for each one here, where tiles divide the extents."""
        return (self.outputs * self.window / self.inputs) ** self.directions

    @property
    def transforms(self) -> Transforms:
        """The matrices of either direction."""
        return transforms(self.outputs, self.window)

    @property
    def is_first(self) -> bool:
        """Whether it is F(2x2, 3x3), whose stages and axes recorded configs name."""
        return self == F2X2_3X3

    @property
    def suffix(self) -> str:
        """Of the names of its stages."""
        return SUFFIX if self.is_first else f"{SUFFIX}{self.outputs}"

    def multiplications(self, extents: Collection[int]) -> int:
        """For each channel, of an image with these extents along the directions."""
        return prod(-(-extent // self.outputs) * self.inputs for extent in extents)


F2X2_3X3 = WinogradTile(outputs=2, window=3, directions=2)
# Smaller tiles before larger ones of the same window.
TILES = (
    F2X2_3X3,
    WinogradTile(outputs=4, window=3, directions=2),
    WinogradTile(outputs=2, window=5, directions=2),
    WinogradTile(outputs=4, window=5, directions=2),
    WinogradTile(outputs=2, window=3, directions=1),
    WinogradTile(outputs=4, window=3, directions=1),
    WinogradTile(outputs=2, window=5, directions=1),
    WinogradTile(outputs=4, window=5, directions=1),
)
