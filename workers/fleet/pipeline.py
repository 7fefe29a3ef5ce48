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
from dataclasses import replace
from math import ceil

from tuner.measure.outcome import Candidate, Failed, FailureKind, Outcome, Timed, Trial
from tuner.workers.fleet.candidates import Item, take
from tuner.workers.fleet.dedup import Deduplication
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
from tuner.workers.fleet.policy import POLICIES, JobShare, LaneShare, Place, PolicyName
from tuner.workers.fleet.worker_slot import ANYTHING, WorkerSlot

MAX_RETRIES = (
    3  # a candidate that loses its worker more often is quarantined: it is what kills them
)
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
        self.builders: dict[str, WorkerSlot] = {}
        self.runners: dict[str, WorkerSlot] = {}
        self._alternates = False
        self._demand = Demand(POLICIES[policy], LaneShare(most=lane_share))
        self._deduplication = Deduplication()
        self._reports: list[Report] = []
        self._spans: list[Span] = []
        self._spent: list[Library] = []
        self._best_s: dict[str, float] = {}  # by problem
        self.paused = False  # nothing new is handed out while it is set
        self.reserved = ""  # a builder that is given nothing new
        self.add(
            builders=builders,
            runners=runners,
            alternates=alternates,
            places=places,
            prepares=prepares,
        )
        for builder, runner in (borrowers or {}).items():
            borrower, lane = self.builders[builder], self.runners[runner]
            borrower.host, borrower.depth, lane.borrower = lane, 1, borrower

    def add(
        self,
        *,
        builders: Sequence[str],
        runners: Sequence[str],
        alternates: bool,
        places: Mapping[str, Place] | None = None,
        prepares: Collection[str] = (),
    ) -> None:
        """The slots of a machine that joined."""
        self.builders |= {name: WorkerSlot(name) for name in builders}
        for name in runners:
            place, prepared = (
                (places or {}).get(name, ANYTHING),
                set[str]() if name in prepares else None,
            )
            self.runners[name] = WorkerSlot(name, place=place, prepared=prepared)
        self._alternates = self._alternates or alternates
        self._equip()

    def retire(self, worker: str, reason: str) -> None:
        """A slot is gone for good: what it held is tried again elsewhere."""
        self.lost(worker, reason)
        self.builders.pop(worker, None)
        self.runners.pop(worker, None)
        self._equip()

    def _equip(self) -> None:
        self._demand.slots((slot.place for slot in self.runners.values()), len(self.builders))

    def unprepared(self) -> list[tuple[str, str]]:
        """Lanes, each with a problem that it should be made ready for: candidates are
        on their way to lanes like that."""
        wanted = [(queue, problem) for queue in self._demand for problem in queue.problems]
        building = (batch[0] for slot in self.builders.values() for batch in slot.batches)
        wanted += [(item.queue, item.problem) for item in building if not item.abandoned]
        found = {
            (name, problem): None
            for queue, problem in wanted
            for name, slot in self.runners.items()
            if not slot.takes(problem) and slot.place.fits(queue.account.job_share)
        }
        return list(found)

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

    def reserve(self, *, wanted: bool) -> None:
        """Keeps one builder free, the least busy one, for as long as that is wanted: it
        is to answer a control request."""
        if not wanted:
            self.reserved = ""
        elif self.reserved not in self.builders:
            free = min(
                (one for one in self.builders.values() if one.host is None),
                key=lambda one: one.load,
                default=None,
            )
            self.reserved = "" if free is None else free.name

    # -- what comes in
    # ------------------------------------------------------------------------------

    def submit(
        self,
        problem: str,
        candidates: Iterable[Candidate],
        known: Mapping[str, Outcome] | None = None,
        job_share: JobShare = UNSHARED,
    ) -> None:
        """Takes candidates of the problem with this key, of one job. `known` are
        outcomes by library hash, from earlier runs."""
        for sha256, outcome in (known or {}).items():
            self._deduplication.remember(sha256, outcome)
            self._note_time(problem, outcome)
        self._demand.submit(job_share, problem, candidates)

    def built(self, builder: str, results: Sequence[Built]) -> None:
        """The oldest batch of a builder came back."""
        batch = self.builders[builder].batches.popleft()
        batch[0].queue.account.building -= len(batch)
        for item, result in zip(batch, results, strict=True):
            item.build_s = result.ended_s - result.started_s
            item.ready_s = result.ended_s
            item.queue.account.built(item.build_s)
            self._spans.append(_span(builder, "build", item, result.started_s, result.ended_s))
            match result.result:
                case Failed(kind=FailureKind.INFRASTRUCTURE, message=message):
                    self._retry(item, message)
                case Failed() as failed:
                    self._finish(item, failed, worker=builder)
                case Library() as library:
                    item.library = library
                    self._enqueue(item, library)

    def measured(self, runner: str, results: Sequence[Measured]) -> None:
        """The oldest batch of a runner came back."""
        slot = self.runners[runner]
        batch = slot.batches.popleft()
        batch[0].queue.account.measuring -= len(batch)
        for item, result in zip(batch, results, strict=True):
            held_s = result.ended_s - result.started_s
            self._demand.measured(item.queue, held_s, result.ended_s)
            if slot.idle_since is not None and result.started_s > slot.idle_since:
                self._spans.append(_span(runner, "idle", item, slot.idle_since, result.started_s))
            slot.idle_since = result.ended_s
            self._spans.append(_span(runner, "wait", item, item.ready_s, result.started_s))
            self._spans.append(_span(runner, "time", item, result.started_s, result.ended_s))
            self._settle(item, result.outcome, runner, held_s)

    def raced(self, runner: str, started_s: float, ended_s: float) -> Span:
        """A lane was held by a race; the span that says so. It was not idle meanwhile."""
        slot = self.runners[runner]
        if slot.idle_since is not None and started_s > slot.idle_since:
            self._spans.append(
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
        slot = self.builders.get(worker) or self.runners[worker]
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
                        self._deduplication.interrupted(item.library.sha256)
                if started and not behind:
                    self._retry(item, f"{worker}: {reason}")
                elif not item.abandoned:
                    self._again(item)

    def abandon(self, job: str = "", *, leaves: bool = False) -> None:
        """Forgets a job's candidates that are at no worker; those that are, are dropped
        when they come back.

        `leaves`: the job will not submit any more, and what it has had of the fleet is
        forgotten too.
        """
        self._demand.abandon(job)
        for slot in (*self.builders.values(), *self.runners.values()):
            for batch in slot.batches:
                for item in batch:
                    item.abandoned = item.abandoned or item.job == job
        for item in self._deduplication.abandon(job):
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
        # With a thousand lanes most are full: what is cheapest to ask comes first, here
        # and wherever all slots are asked.
        room = (
            one for one in self.builders.values() if len(one.batches) < (1 if urgent else one.depth)
        )
        free = (one for one in room if one.name != self.reserved and not one.occupied)
        slot = min(free, key=lambda one: one.load, default=None)
        if slot is None:
            return None
        queue = self._demand.next_to_build(slot.room, self._lane_takes)
        if queue is None:
            return None
        share = ceil(self._demand.to_build / (len(self.builders) * slot.depth))
        batch = take(
            queue.to_build, 1 if urgent else min(_batch_size(queue.account.build_s), share)
        )
        queue.account.building += len(batch)
        slot.batches.append(batch)
        if urgent:
            self._promise(batch[0])
        requests = [
            BuildRequest(
                number=item.candidate.number,
                config=item.candidate.config or None,
                lane=item.lane,
                best_s=self._best_s.get(item.problem) if item.lane else None,
            )
            for item in batch
        ]
        return slot.name, batch[0].problem, requests

    def next_measurement(self) -> tuple[str, str, list[MeasureRequest]] | None:
        """The runner, the problem's key and the next batch for it; call until None."""
        if not self.runners or not self._may_measure():
            return None
        depth = self._lane_depth()
        free = [
            one
            for one in self.runners.values()
            if len(one.batches) < depth and not one.drained and not one.occupied
        ]
        places = {one.place for one in free}

        def at(place: Place, item: Item) -> WorkerSlot | None:
            fitting = [one for one in free if one.place == place and one.takes(item.problem)]
            if self.paused:  # but what a lane has begun with is brought to its end
                fitting = [one for one in fitting if one.name == item.lane]
            return min(fitting, key=lambda one: (one.load, one.name != item.lane), default=None)

        chosen = self._demand.next_for_lane(places, at) if free else None
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
            best_s = self._best_s.get(item.problem)
            requests.append(
                MeasureRequest(number=item.candidate.number, library=item.library, best_s=best_s)
            )
        return slot.name, batch[0].problem, requests

    def collect(self) -> tuple[list[Report], list[Span]]:
        """What ended and what workers did since the last call."""
        reports, self._reports = self._reports, []
        spans, self._spans = self._spans, []
        return reports, spans

    def spent(self) -> list[Library]:
        """Libraries that nobody needs any more since the last call."""
        spent, self._spent = self._spent, []
        return spent

    @property
    def alternates(self) -> bool:
        """Whether building and measuring take turns on the same cores."""
        return self._alternates

    @property
    def busy(self) -> bool:
        """Whether anything is at a worker."""
        return any(slot.batches for slot in (*self.builders.values(), *self.runners.values()))

    # -- inside
    # ------------------------------------------------------------------------------

    def _lane_takes(self, problem: str) -> bool:
        return any(one.takes(problem) for one in self.runners.values())

    def _lane_waits(self) -> bool:
        """Whether a lane has nothing to go on with but what is being built.

        Each candidate then travels alone, and its builder gets the next one after it
        was handed over: a builder that had it already would keep the core from those
        who bring the lane its work.
        """
        lanes = self.runners.values()
        return (
            not self._alternates
            and not self._demand.ready
            and any(one.load < one.depth for one in lanes if not one.drained)
        )

    def _promise(self, item: Item) -> None:
        """Names a lane that may begin with the candidate once it is built: one that
        waits and that no other was promised."""
        item.lane = ""
        if item.lost:
            return
        taken = {
            other.lane
            for builder in self.builders.values()
            for batch in builder.batches
            for other in batch
        }
        job_share = item.queue.account.job_share
        waiting = [
            one
            for one in self.runners.values()
            if one.prepared is not None and one.takes(item.problem) and one.place.fits(job_share)
            if not one.drained and one.borrower is None and one.name not in taken
        ]
        best = min(waiting, key=lambda one: (one.place.waste(job_share), one.load), default=None)
        item.lane = "" if best is None else best.name

    def _lane_depth(self) -> int:
        """Batches a lane may hold: the next waits there where each has one; fewer go to
        whichever lane is free first."""
        lanes, ready = len(self.runners), self._demand.ready
        waiting = (
            ready
            if ready >= lanes
            else ready + sum(len(one.batches) > 1 for one in self.runners.values())
        )
        return 2 if waiting >= lanes else 1

    def _may_build(self) -> bool:
        if not self._alternates:
            return True
        building = sum(len(batch) for slot in self.builders.values() for batch in slot.batches)
        measuring = any(slot.batches for slot in self.runners.values())
        return not measuring and self._demand.ready + building < ALTERNATING_CHUNK

    def _may_measure(self) -> bool:
        if not self._alternates:
            return True
        if any(slot.batches for slot in self.builders.values()):
            return False
        return (
            not self._demand.to_build
            or self._demand.ready >= ALTERNATING_CHUNK
            or self._measuring()
        )

    def _measuring(self) -> bool:
        return any(slot.batches for slot in self.runners.values())

    def _enqueue(self, item: Item, library: Library) -> None:
        if item.abandoned:
            return
        known = self._deduplication.outcome(library.sha256)
        if known is not None:
            self._finish(item, known, worker="")
        elif not self._deduplication.waits(item, library.sha256):
            self._deduplication.begin(item, library.sha256)
            item.queue.is_ready(item)

    def _settle(self, item: Item, outcome: Outcome, runner: str, held_s: float) -> None:
        """A measurement came back."""
        if item.abandoned or item.library is None:
            return
        sha256 = item.library.sha256
        if isinstance(outcome, Failed) and outcome.kind is FailureKind.INFRASTRUCTURE:
            self._deduplication.interrupted(sha256)
            self._retry(item, outcome.message)
            return
        self._note_time(item.problem, outcome)
        self._spent.append(item.library)
        self._finish(item, outcome, worker=runner, measure_s=held_s)
        for duplicate, reused in self._deduplication.ended(sha256, outcome):
            self._finish(duplicate, reused, worker="")

    def _note_time(self, problem: str, outcome: Outcome) -> None:
        if isinstance(outcome, Timed):
            self._best_s[problem] = min(
                outcome.median_s, self._best_s.get(problem, outcome.median_s)
            )

    def _retry(self, item: Item, reason: str) -> None:
        if item.abandoned:
            return
        item.lost.append(reason)
        item.lane = ""
        if len(item.lost) <= MAX_RETRIES:
            self._again(item)
            return
        reasons = "; ".join(dict.fromkeys(item.lost))
        text = (
            f"given up after {len(item.lost)} attempts, each of which lost its worker or the "
            f"machine's help: {reasons}"
        )
        self._finish(
            item, Failed(kind=FailureKind.INFRASTRUCTURE, message=text), worker="", quarantined=True
        )
        if (
            item.library is not None
            and (duplicate := self._deduplication.successor(item.library.sha256)) is not None
        ):
            duplicate.queue.is_ready(duplicate)

    def _again(self, item: Item) -> None:
        """Back to where it waits for a worker, before all others."""
        if item.library is None:
            item.queue.to_build.appendleft(item)
        else:
            self._deduplication.begin(item, item.library.sha256)
            item.queue.is_ready(item, again=True)

    def _finish(
        self,
        item: Item,
        outcome: Outcome,
        *,
        worker: str,
        measure_s: float = 0.0,
        quarantined: bool = False,
    ) -> None:
        if item.abandoned:
            return
        if (
            not worker or item.library is None
        ):  # no lane was needed: what the fleet spent on it is its build
            item.queue.account.charged_s += item.build_s
        number, config = item.candidate.number, item.candidate.config
        trial = Trial(
            number=number, config=config, outcome=outcome, build_s=item.build_s, measure_s=measure_s
        )
        trial = replace(trial, resources=item.resources)
        attempts = len(item.lost) if quarantined else len(item.lost) + 1
        self._reports.append(
            Report(
                problem=item.problem,
                trial=trial,
                worker=worker,
                attempts=attempts,
                quarantined=quarantined,
                job=item.job,
            )
        )


def _batch_size(item_s: float) -> int:
    """Candidates in one message, of so many seconds each."""
    return max(1, min(MAX_BATCH, int(BATCH_S / max(item_s, 1e-4))))


def _span(worker: str, activity: str, item: Item, started_s: float, ended_s: float) -> Span:
    number = None if activity == "idle" else item.candidate.number
    return Span(
        worker=worker,
        activity=activity,
        number=number,
        started_s=started_s,
        ended_s=max(started_s, ended_s),
        job=item.job,
    )
