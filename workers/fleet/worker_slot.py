"""A builder or a runner as the pipeline sees it: the batches that it holds, and what it
may be given."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tuner.workers.fleet.candidates import Item
from tuner.workers.fleet.policy import Place

ANYTHING = Place()  # a lane of which nothing is known takes every candidate


@dataclass(slots=True, eq=False)
class WorkerSlot:
    """A builder or a runner as the pipeline sees it."""

    name: str
    depth: int = 2  # batches it may hold: one being worked on, the next one there already
    place: Place = ANYTHING  # runners only
    batches: deque[list[Item]] = field(default_factory=deque)
    idle_since: float | None = None  # runners only
    drained: bool = False  # runners only: given nothing new
    prepared: set[str] | None = (
        None  # runners only: problems it may be given; None: any, it makes ready what it needs
    )
    borrower: WorkerSlot | None = (
        None  # runners only: the builder that has a core of the lane while this measures nothing
    )
    host: WorkerSlot | None = None  # of a borrower: its lane
    # runners only: it answers a control request on the lane, such as what its calibration
    # kernel takes
    asked: bool = False

    @property
    def occupied(self) -> bool:
        """Whether its cores are somebody else's just now: a borrower's lane measures, or a
        lane's borrower builds."""
        if self.host is not None:
            return self.host.asked or bool(self.host.batches)
        return self.borrower is not None and bool(self.borrower.batches)

    @property
    def load(self) -> int:
        return len(self.batches)

    def room(self, item: Item) -> bool:
        """An item that already lost a worker travels alone, so that it takes nobody along."""
        careful = bool(item.lost) or any(other.lost for batch in self.batches for other in batch)
        return self.load < (1 if careful else self.depth)

    def takes(self, problem: str) -> bool:
        return self.prepared is None or problem in self.prepared
