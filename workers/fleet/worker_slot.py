"""A worker slot: a builder or runner as the pipeline sees it, with its batches."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tuner.workers.fleet.candidates import Item
from tuner.workers.fleet.policy import Place

ANYTHING = Place()  # a lane with unknown properties takes every candidate


@dataclass(slots=True, eq=False)
class WorkerSlot:
    """A builder or a runner as the pipeline sees it."""

    name: str
    depth: int = 2  # batches it may hold: one being worked on, the next one there already
    place: Place = ANYTHING  # runners only
    batches: deque[list[Item]] = field(default_factory=deque)
    idle_since: float | None = None  # runners only
    drained: bool = False  # runners only: gets nothing new
    # runners only: problems it may get; None: any, since it prepares them itself
    prepared: set[str] | None = None
    # runners only: the builder that uses a core of the lane while the lane is idle
    borrower: WorkerSlot | None = None
    host: WorkerSlot | None = None  # of a borrower: its lane
    # runners only: the lane itself is needed, for example for its calibration
    asked: bool = False

    @property
    def occupied(self) -> bool:
        """Whether its cores are in use by its lane, or by its borrower."""
        if self.host is not None:
            return self.host.asked or bool(self.host.batches)
        return self.borrower is not None and bool(self.borrower.batches)

    @property
    def load(self) -> int:
        return len(self.batches)

    def room(self, item: Item) -> bool:
        """Whether it may get the item; one that already lost a worker is sent alone."""
        careful = bool(item.lost) or any(other.lost for batch in self.batches for other in batch)
        return self.load < (1 if careful else self.depth)

    def takes(self, problem: str) -> bool:
        return self.prepared is None or problem in self.prepared
