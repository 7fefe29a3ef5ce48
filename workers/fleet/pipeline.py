"""The pipeline of a fleet: which candidate is built or measured where.

Pure and on an injected clock, so that it is tested with thousands of simulated lanes; the
driver carries out its decisions. The policy decides whose candidates go next
(`demand.py`). Those of one job are built in order and measured first come, first served.
A lane gets work whenever a built candidate waits, unless its code is already being
measured (`dedup.py`). The candidates of a lost worker are tried again (`outcomes.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil

from tuner.measure.outcome import Candidate, Failed, FailureKind, Outcome
from tuner.spaces.core.space import Config
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
from tuner.workers.fleet.recent_builds import BuildPlaces
from tuner.workers.fleet.slots import Slots
from tuner.workers.fleet.worker_slot import WorkerSlot

# Work in one message: long compared to its cost of about a millisecond, short compared to
# a planning round.
BATCH_S = 0.05
MAX_BATCH = 16
# Candidates built before a lane that shares its cores with the builder measures them.
ALTERNATING_CHUNK = 8

UNSHARED = JobShare()  # of a single job


class Pipeline:
    """Decides which worker gets which batch; a batch holds candidates of one job.

    Not thread-safe. Its owner passes events in and carries out the decisions.
    """

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
        """Starts with the workers of one machine, or with none.

        `places` are what runners' lanes offer; a runner that is not named takes
        everything. `prepares` are runners that get a problem's candidates only once they
        are `prepared` for it. `borrowers` are builders with the lanes that lend them a
        core.
        """
        self._slots = Slots()
        self._demand = Demand(POLICIES[policy], LaneShare(most=lane_share))
        self._outcomes = Outcomes()
        self._places = BuildPlaces()
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
        """Adds the workers of a machine that joined."""
        self._slots.add(
            builders=builders,
            runners=runners,
            alternates=alternates,
            places=places or {},
            prepares=prepares,
        )
        self._count_slots()

    def retire(self, worker: str, reason: str) -> None:
        """Removes a worker; its candidates are tried again elsewhere."""
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
        """Pairs of a lane and a problem for which it should be prepared.

        The problems are those of queued candidates and of candidates that are being built.
        """
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
        """Notes that a lane is prepared for a problem, and may get its candidates."""
        prepared = self.runners[runner].prepared
        if prepared is not None:
            prepared.add(problem)

    def drain(self, runner: str, *, drained: bool = True) -> None:
        """Drains a lane: it gets nothing new, but measures what it holds."""
        self.runners[runner].drained = drained

    def vacated(self, runner: str) -> bool:
        """Whether a lane's borrower is idle; it gets nothing new until the lane is `shared`."""
        lane = self.runners[runner]
        lane.asked = True
        return not lane.occupied

    def shared(self, runner: str) -> None:
        """Lets a lane's borrower build again."""
        self.runners[runner].asked = False

    def reserve(self, *, needed: bool) -> None:
        """Keeps the least busy builder free for a control request while `needed`."""
        self._slots.reserve(needed=needed)

    @property
    def reserved(self) -> str:
        """The builder that is kept free; empty for none."""
        return self._slots.reserved

    # -- input --

    def submit(
        self,
        problem: str,
        candidates: Iterable[Candidate],
        known_outcomes: Mapping[str, Outcome] | None = None,
        job_share: JobShare = UNSHARED,
    ) -> None:
        """Takes candidates of the problem with this key, of one job. `known_outcomes` are
        outcomes by library hash, from earlier runs."""
        self._outcomes.remember(problem, known_outcomes or {}, job_share.cache)
        self._demand.submit(job_share, problem, candidates)

    def built(self, builder: str, results: Sequence[Built]) -> None:
        """Takes the results of a builder's oldest batch."""
        batch = self.builders[builder].batches.popleft()
        batch[0].queue.account.building -= len(batch)
        for item, result in zip(batch, results, strict=True):
            item.build_s = result.ended_s - result.started_s
            item.ready_s = result.ended_s
            item.queue.account.built(item.build_s)
            self._outcomes.add_span(builder, "build", item, result.started_s, result.ended_s)
            self._places.note(item.problem, item.candidate.config, builder)
            match result.result:
                case Failed(kind=FailureKind.INFRASTRUCTURE, message=message):
                    self._outcomes.retry(item, message)
                case Failed() as failed:
                    self._outcomes.finish(item, failed, worker=builder)
                case Library() as library:
                    self._outcomes.built(item, library)

    def builder_of(self, problem: str, config: Config | None) -> str:
        """The builder that built this candidate lately; empty where none is known."""
        return self._places.builder(problem, config)

    def measured(self, runner: str, results: Sequence[Measured]) -> None:
        """Takes the results of a runner's oldest batch."""
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
        """Takes back the candidates of a builder or runner that died or did not answer.

        They are tried again, or end as infrastructure failures. Only the batch that was
        being worked on counts as an attempt, and none before the worker had `started`.
        """
        slot = self._slots[worker]
        batches, slot.batches = slot.batches, deque()
        slot.asked = False
        if slot.prepared is not None:
            slot.prepared = set()  # its replacement begins with nothing
        for behind, batch in reversed(list(enumerate(batches))):
            for item in reversed(batch):
                if item.library is None:
                    item.queue.account.building -= 1
                else:
                    item.queue.account.measuring -= 1
                    if not item.abandoned:
                        self._outcomes.deduplication.interrupted(item.timed_code)
                if started and not behind:
                    self._outcomes.retry(item, f"{worker}: {reason}")
                elif not item.abandoned:
                    self._outcomes.wait_again(item)

    def abandon(self, job: str = "", *, leaves: bool = False) -> None:
        """Forgets a job's candidates; those at workers are dropped when they come back.

        With `leaves`, the job submits nothing more, and its account is forgotten, too.
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

    # -- output --

    def next_build(self) -> tuple[str, str, list[BuildRequest]] | None:
        """A builder, the problem's key and the next batch for it; call until None."""
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
        """A runner, the problem's key and the next batch for it; call until None."""
        if not self.runners or not self._may_measure():
            return None
        free = self._slots.free_lanes(self._demand.ready)
        places = {slot.place for slot in free}

        def lane_at(place: Place, item: Item) -> WorkerSlot | None:
            fitting = [slot for slot in free if slot.place == place and slot.takes(item.problem)]
            if self.paused:  # except for candidates that a lane has begun with
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
        """Reports and spans since the last call."""
        return self._outcomes.collect()

    def spent(self) -> list[Library]:
        """Libraries that are no longer needed since the last call."""
        return self._outcomes.spent()

    # -- rules --

    def _lane_waits(self) -> bool:
        """Whether a lane waits for candidates that are being built.

        Each candidate is then sent alone, and a builder gets the next one after the
        previous was handed over: otherwise it would keep the core from the processes that
        bring the lane its work.
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
    """The number of candidates in a message, of so many seconds each."""
    return max(1, min(MAX_BATCH, int(BATCH_S / max(item_s, 1e-4))))
