"""The contract of what multiplies and adds in a tile's body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.facts import Unrolling
from tuner.spaces.cpu.tiled_stage import TiledStage


@dataclass(frozen=True, kw_only=True)
class TileValues:
    """What a tile sketch offers of the decisions that depend on its arithmetic."""

    register_tiles: Sequence[tuple[int, ...]]  # elements of each axis of the anchor
    reduction_blocks: Sequence[int]  # iterations of the longest axis; none of a map
    unrollings: Sequence[Unrolling]  # none of a map
    copies: Sequence[Sequence[CopyMode]]  # of each read


class Arithmetic(Protocol):
    """Plain vectors, dot products or matrix registers.

    What the nest must know of it is the stage's `Instruction`.
    """

    def name(self, stage: TiledStage) -> str:
        """The sketch's name: a word, and the vectorised axis. Configs store it."""
        ...

    def rate(self, stage: TiledStage) -> float:
        """Multiply-adds of a sum of products in the time that one of float32 takes."""
        ...

    def values(self, stage: TiledStage) -> TileValues:
        """Those that its registers and its operands leave."""
        ...
