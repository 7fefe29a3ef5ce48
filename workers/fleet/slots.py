"""The builders and runners of a pipeline, and which of them may get more work."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from tuner.workers.fleet.candidates import Item
from tuner.workers.fleet.policy import Place
from tuner.workers.fleet.worker_slot import ANYTHING, WorkerSlot


class Slots:
    """Builders and runners by name, each with the batches it holds."""

    def __init__(self) -> None:
        self.builders: dict[str, WorkerSlot] = {}
        self.runners: dict[str, WorkerSlot] = {}
        self.alternates = False  # whether building and measuring take turns on the same cores
        self.reserved = ""  # a builder that is given nothing new

    def __iter__(self) -> Iterator[WorkerSlot]:
        yield from self.builders.values()
        yield from self.runners.values()

    def add(
        self,
        *,
        builders: Sequence[str],
        runners: Sequence[str],
        alternates: bool,
        places: Mapping[str, Place],
        prepares: Collection[str],
    ) -> None:
        """Adds the workers of a machine; arguments as of `Pipeline`."""
        self.builders |= {name: WorkerSlot(name) for name in builders}
        for name in runners:
            prepared = set[str]() if name in prepares else None
            self.runners[name] = WorkerSlot(
                name, place=places.get(name, ANYTHING), prepared=prepared
            )
        self.alternates = self.alternates or alternates

    def lend(self, borrowers: Mapping[str, str]) -> None:
        """Connects builders with the lanes that lend them a core."""
        for builder, runner in borrowers.items():
            borrower, lane = self.builders[builder], self.runners[runner]
            borrower.host, borrower.depth, lane.borrower = lane, 1, borrower

    def remove(self, worker: str) -> None:
        self.builders.pop(worker, None)
        self.runners.pop(worker, None)

    def __getitem__(self, worker: str) -> WorkerSlot:
        return self.builders.get(worker) or self.runners[worker]

    def reserve(self, *, needed: bool) -> None:
        """Keeps the least busy builder free while `needed`."""
        if not needed:
            self.reserved = ""
        elif self.reserved not in self.builders:
            own_core = (slot for slot in self.builders.values() if slot.host is None)
            free = min(own_core, key=lambda slot: slot.load, default=None)
            self.reserved = "" if free is None else free.name

    @property
    def busy(self) -> bool:
        """Whether anything is at a worker."""
        return any(slot.batches for slot in self)

    @property
    def building(self) -> Iterable[list[Item]]:
        """The batches at builders."""
        return (batch for slot in self.builders.values() for batch in slot.batches)

    @property
    def measuring(self) -> bool:
        """Whether a lane has anything."""
        return any(slot.batches for slot in self.runners.values())

    def a_lane_takes(self, problem: str) -> bool:
        """Whether some lane may be given a problem's candidates."""
        return any(slot.takes(problem) for slot in self.runners.values())

    @property
    def a_lane_has_room(self) -> bool:
        """Whether some lane could hold another batch."""
        return any(slot.load < slot.depth for slot in self.runners.values() if not slot.drained)

    def free_builder(self, most: int | None) -> WorkerSlot | None:
        """The least busy builder that may get a batch, of those with fewer than `most`."""
        # With a thousand lanes most are full: the cheapest check comes first, here and
        # wherever all slots are checked.
        room = (
            slot
            for slot in self.builders.values()
            if len(slot.batches) < (slot.depth if most is None else most)
        )
        free = (slot for slot in room if slot.name != self.reserved and not slot.occupied)
        return min(free, key=lambda slot: slot.load, default=None)

    def free_lanes(self, ready: int) -> list[WorkerSlot]:
        """Lanes that may get a batch while so many candidates are ready.

        A second batch waits at a lane only if there are enough for all lanes. Otherwise
        candidates go to the lane that is free first.
        """
        lanes = len(self.runners)
        if ready < lanes:
            ready += sum(len(slot.batches) > 1 for slot in self.runners.values())
        depth = 2 if ready >= lanes else 1
        return [
            slot
            for slot in self.runners.values()
            if len(slot.batches) < depth and not slot.drained and not slot.occupied
        ]

    def promised_lane(self, item: Item) -> str:
        """A waiting lane that may begin with the candidate as soon as it is built.

        Empty if there is none that was not promised to another candidate.
        """
        if item.lost:
            return ""
        promised = {other.lane for batch in self.building for other in batch}
        job_share = item.queue.account.job_share
        waiting = [
            slot
            for slot in self.runners.values()
            if slot.prepared is not None and slot.takes(item.problem) and slot.place.fits(job_share)
            if not slot.drained and slot.borrower is None and slot.name not in promised
        ]
        best = min(waiting, key=lambda slot: (slot.place.waste(job_share), slot.load), default=None)
        return "" if best is None else best.name
