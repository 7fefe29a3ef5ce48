"""A config of the tile or the patch sketch, decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.spaces.cuda.axes import DepthAxis, GridAxis
from tuner.spaces.cuda.copy_mode import SharedCopy
from tuner.spaces.cuda.pipelining import UNPIPELINED, Pipelining
from tuner.workload.expression import Read


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaTilePlan:
    """What the blocks and threads of one tile group are."""

    # In the order of the stage's axes; one unit axis where the stage has none.
    spatial: tuple[GridAxis, ...]
    threads: tuple[str, ...]  # axes with threads, at most three, the fastest last
    grid: tuple[str, ...]  # all axes, in the order in which blocks are numbered
    reduction: tuple[DepthAxis, ...] = ()  # in loop order, the innermost last
    copies: Mapping[Read, SharedCopy] = field(default_factory=dict)
    # Rows of threads that a warp covers, along the last but one axis with threads;
    # 0: threads are numbered row by row.
    warp_rows: int = 0
    pipelining: Pipelining = UNPIPELINED

    @property
    def overlaps(self) -> bool:
        """Whether there are copies, and anything to compute while they are under way."""
        return bool(self.copies and self.reduction and self.reduction[-1].outer.extent > 1)

    def axis(self, name: str) -> GridAxis:
        return next(part for part in self.spatial if part.axis.name == name)
