"""The fleet's bookkeeping: which candidate is built or measured where, and what becomes
of it when a worker is lost.

Pure and on an injected clock, so that it is tested with thousands of simulated lanes.
`driver.py` carries out what it decides. Whose candidates are next is the policy's to
say (demand.py); those of one job are built in order and measured first come, first
served. A lane is handed work whenever a built candidate waits, unless its code is
measured already (duplicates.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil

from tuner.measure.outcome import Candidate, Failed, FailureKind, Outcome
from tuner.workers.fleet.candidates import Item, take
from tuner.workers.fleet.demand import Demand
from tuner.workers.fleet.messages import (
    BuildRequest,
    Built,
    Library,
    Measured,
    MeasureRequest,
    Report,
    Span,
)
from tuner.workers.fleet.outcomes import Outcomes
from tuner.workers.fleet.policy import POLICIES, JobShare, LaneShare, Place, PolicyName
from tuner.workers.fleet.slots import Slots
from tuner.workers.fleet.worker_slot import WorkerSlot

# work packed into one message: long against its cost of about a millisecond, short
# against a planning round
BATCH_S = 0.05
MAX_BATCH = 16
ALTERNATING_CHUNK = (
    8  # candidates built before a lane that shares its cores with the builder measures them
)

UNSHARED = JobShare()  # of the only job there is


class Pipeline:
    """Not thread-safe; its owner passes events in and carries out what it is told. A
    batch holds candidates of one job."""

    def __init__(
        self,
        *,
        builders: Sequence[str],
        runners: Sequence[str],
        alternates: bool = False,
        policy: PolicyName = "fair",
        lane_share: float = 1.0,
        places: Mapping[str, Place] | None = None,
        prepares: Collection[str] = (),
        borrowers: Mapping[str, str] | None = None,
    ) -> None:
        """`places`: what each runner's lane offers; one that is not named takes
        everything. `prepares`: runners that are given a problem's candidates only once
        they are `prepared` for it. `borrowers`: builders, each with the lane that lends it
        a core."""
        self._slots = Slots()
        self._demand = Demand(POLICIES[policy], LaneShare(most=lane_share))
        self._outcomes = Outcomes()
        self.paused = False  # nothing new is handed out while it is set
        self.add(
            builders=builders,
            runners=runners,
            alternates=alternates,
            places=places,
            prepares=prepares,
        )
        self._slots.lend(borrowers or {})

    def add(
        self,
        *,
        builders: Sequence[str],
        runners: Sequence[str],
        alternates: bool,
        places: Mapping[str, Place] | None = None,
        prepares: Collection[str] = (),
    ) -> None:
        """The workers of a machine that joined."""
        self._slots.add(
            builders=builders,
            runners=runners,
            alternates=alternates,
            places=places or {},
            prepares=prepares,
        )
        self._count_slots()

    def retire(self, worker: str, reason: str) -> None:
        """A worker is gone for good: what it held is tried again elsewhere."""
        self.lost(worker, reason)
        self._slots.remove(worker)
        self._count_slots()

    def _count_slots(self) -> None:
        lanes = (slot.place for slot in self.runners.values())
        self._demand.slots(lanes, len(self.builders))

    @property
    def builders(self) -> Mapping[str, WorkerSlot]:
        return self._slots.builders

    @property
    def runners(self) -> Mapping[str, WorkerSlot]:
        return self._slots.runners

    @property
    def alternates(self) -> bool:
        """Whether building and measuring take turns on the same cores."""
        return self._slots.alternates

    @property
    def busy(self) -> bool:
        """Whether anything is at a worker."""
        return self._slots.busy

    def unprepared(self) -> list[tuple[str, str]]:
        """Lanes, each with a problem that it should be made ready for: candidates are
        on their way to lanes like that."""
        coming = [(queue, problem) for queue in self._demand for problem in queue.problems]
        building = (batch[0] for batch in self._slots.building)
        coming += [(item.queue, item.problem) for item in building if not item.abandoned]
        pairs = {
            (name, problem): None
            for queue, problem in coming
            for name, slot in self.runners.items()
            if not slot.takes(problem) and slot.place.fits(queue.account.job_share)
        }
        return list(pairs)

    def prepared(self, runner: str, problem: str) -> None:
        """From now on the lane may be given this problem's candidates."""
        prepared = self.runners[runner].prepared
        if prepared is not None:
            prepared.add(problem)

    def drain(self, runner: str, *, drained: bool = True) -> None:
        """Gives a lane nothing new for as long as it is drained; what it holds is measured."""
        self.runners[runner].drained = drained

    def vacated(self, runner: str) -> bool:
        """Whether a lane's borrower is out of the way; it is given nothing new until the
        lane is `shared` again."""
        lane = self.runners[runner]
        lane.asked = True
        return not lane.occupied

    def shared(self, runner: str) -> None:
        """The lane has answered what it was asked."""
        self.runners[runner].asked = False

    def reserve(self, *, needed: bool) -> None:
        """Keeps one builder free, the least busy one, for as long as that is wanted: it
        is to answer a control request."""
        self._slots.reserve(needed=needed)

    @property
    def reserved(self) -> str:
        """The builder that is kept free; empty for none."""
        return self._slots.reserved

    # -- what comes in
    # ------------------------------------------------------------------------------

    def submit(
        self,
        problem: str,
        candidates: Iterable[Candidate],
        known_outcomes: Mapping[str, Outcome] | None = None,
        job_share: JobShare = UNSHARED,
    ) -> None:
        """Takes candidates of the problem with this key, of one job. `known_outcomes` are
        outcomes by library hash, from earlier runs."""
        self._outcomes.remember(problem, known_outcomes or {})
        self._demand.submit(job_share, problem, candidates)

    def built(self, builder: str, results: Sequence[Built]) -> None:
        """The oldest batch of a builder came back."""
        batch = self.builders[builder].batches.popleft()
        batch[0].queue.account.building -= len(batch)
        for item, result in zip(batch, results, strict=True):
            item.build_s = result.ended_s - result.started_s
            item.ready_s = result.ended_s
            item.queue.account.built(item.build_s)
            self._outcomes.add_span(builder, "build", item, result.started_s, result.ended_s)
            match result.result:
                case Failed(kind=FailureKind.INFRASTRUCTURE, message=message):
                    self._outcomes.retry(item, message)
                case Failed() as failed:
                    self._outcomes.finish(item, failed, worker=builder)
                case Library() as library:
                    self._outcomes.built(item, library)

    def measured(self, runner: str, results: Sequence[Measured]) -> None:
        """The oldest batch of a runner came back."""
        slot = self.runners[runner]
        batch = slot.batches.popleft()
        batch[0].queue.account.measuring -= len(batch)
        for item, result in zip(batch, results, strict=True):
            held_s = result.ended_s - result.started_s
            self._demand.measured(item.queue, held_s, result.ended_s)
            if slot.idle_since is not None and result.started_s > slot.idle_since:
                self._outcomes.add_span(runner, "idle", item, slot.idle_since, result.started_s)
            slot.idle_since = result.ended_s
            self._outcomes.add_span(runner, "wait", item, item.ready_s, result.started_s)
            self._outcomes.add_span(runner, "time", item, result.started_s, result.ended_s)
            self._outcomes.measured(item, result.outcome, runner, held_s)

    def raced(self, runner: str, started_s: float, ended_s: float) -> Span:
        """A lane was held by a race; the span that says so. It was not idle meanwhile."""
        slot = self.runners[runner]
        if slot.idle_since is not None and started_s > slot.idle_since:
            self._outcomes.add(
                Span(
                    worker=runner,
                    activity="idle",
                    number=None,
                    started_s=slot.idle_since,
                    ended_s=started_s,
                )
            )
        slot.idle_since = ended_s
        return Span(
            worker=runner,
            activity="time",
            number=None,
            started_s=started_s,
            ended_s=max(started_s, ended_s),
        )

    def lost(self, worker: str, reason: str, *, started: bool = True) -> None:
        """A builder or runner died or did not answer in time: what it held is tried
        again or ends as infrastructure failure.

        Only what was worked on counts as an attempt: what waited behind it did nothing,
        and before the worker had `started` nothing did.
        """
        slot = self._slots[worker]
        batches, slot.batches = slot.batches, deque()
        slot.asked = False
        if slot.prepared is not None:
            slot.prepared = set()  # whoever takes its place begins with nothing
        for behind, batch in reversed(list(enumerate(batches))):
            for item in reversed(batch):
                if item.library is None:
                    item.queue.account.building -= 1
                else:
                    item.queue.account.measuring -= 1
                    if not item.abandoned:
                        self._outcomes.deduplication.interrupted(item.library.sha256)
                if started and not behind:
                    self._outcomes.retry(item, f"{worker}: {reason}")
                elif not item.abandoned:
                    self._outcomes.wait_again(item)

    def abandon(self, job: str = "", *, leaves: bool = False) -> None:
        """Forgets a job's candidates that are at no worker; those that are, are dropped
        when they come back.

        `leaves`: the job will not submit any more, and what it has had of the fleet is
        forgotten too.
        """
        self._demand.abandon(job)
        for slot in self._slots:
            for batch in slot.batches:
                for item in batch:
                    item.abandoned = item.abandoned or item.job == job
        for item in self._outcomes.deduplication.abandon(job):
            item.queue.is_ready(item)
        if leaves:
            self._demand.leave(job)

    # -- what goes out
    # ------------------------------------------------------------------------------

    def next_build(self) -> tuple[str, str, list[BuildRequest]] | None:
        """The builder, the problem's key and the next batch for it; call until None."""
        if not self.builders or self.paused or not self._may_build():
            return None
        urgent = self._lane_waits()
        slot = self._slots.free_builder(1 if urgent else None)
        if slot is None:
            return None
        queue = self._demand.next_to_build(slot.room, self._slots.a_lane_takes)
        if queue is None:
            return None
        share = ceil(self._demand.to_build / (len(self.builders) * slot.depth))
        batch = take(
            queue.to_build, 1 if urgent else min(_batch_size(queue.account.build_s), share)
        )
        queue.account.building += len(batch)
        slot.batches.append(batch)
        if urgent:
            batch[0].lane = self._slots.promised_lane(batch[0])
        requests = [
            BuildRequest(
                number=item.candidate.number,
                config=item.candidate.config or None,
                lane=item.lane,
                best_s=self._outcomes.best_s(item.problem) if item.lane else None,
            )
            for item in batch
        ]
        return slot.name, batch[0].problem, requests

    def next_measurement(self) -> tuple[str, str, list[MeasureRequest]] | None:
        """The runner, the problem's key and the next batch for it; call until None."""
        if not self.runners or not self._may_measure():
            return None
        free = self._slots.free_lanes(self._demand.ready)
        places = {slot.place for slot in free}

        def lane_at(place: Place, item: Item) -> WorkerSlot | None:
            fitting = [slot for slot in free if slot.place == place and slot.takes(item.problem)]
            if self.paused:  # but what a lane has begun with is brought to its end
                fitting = [slot for slot in fitting if slot.name == item.lane]
            return min(fitting, key=lambda slot: (slot.load, slot.name != item.lane), default=None)

        chosen = self._demand.next_for_lane(places, lane_at) if free else None
        if chosen is None:
            return None
        queue, slot = chosen
        share = ceil(self._demand.ready / (len(self.runners) * slot.depth))
        batch = take(
            queue.ready, 1 if self.paused else min(_batch_size(queue.account.lane_s), share)
        )
        queue.account.ready -= len(batch)
        queue.account.measuring += len(batch)
        slot.batches.append(batch)
        requests = []
        for item in batch:
            assert item.library is not None
            best_s = self._outcomes.best_s(item.problem)
            requests.append(
                MeasureRequest(number=item.candidate.number, library=item.library, best_s=best_s)
            )
        return slot.name, batch[0].problem, requests

    def collect(self) -> tuple[list[Report], list[Span]]:
        """What ended and what workers did since the last call."""
        return self._outcomes.collect()

    def spent(self) -> list[Library]:
        """Libraries that nobody needs any more since the last call."""
        return self._outcomes.spent()

    # -- inside
    # ------------------------------------------------------------------------------

    def _lane_waits(self) -> bool:
        """Whether a lane has nothing to go on with but what is being built.

        Each candidate then travels alone, and its builder gets the next one after it
        was handed over: a builder that had it already would keep the core from those
        who bring the lane its work.
        """
        return not self.alternates and not self._demand.ready and self._slots.a_lane_has_room

    def _may_build(self) -> bool:
        if not self.alternates:
            return True
        building = sum(map(len, self._slots.building))
        return not self._slots.measuring and self._demand.ready + building < ALTERNATING_CHUNK

    def _may_measure(self) -> bool:
        if not self.alternates:
            return True
        if any(self._slots.building):
            return False
        return (
            not self._demand.to_build
            or self._demand.ready >= ALTERNATING_CHUNK
            or self._slots.measuring
        )


def _batch_size(item_s: float) -> int:
    """Candidates in one message, of so many seconds each."""
    return max(1, min(MAX_BATCH, int(BATCH_S / max(item_s, 1e-4))))
