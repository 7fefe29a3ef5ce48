"""The fleet's bookkeeping: which candidate is built or measured where, and what becomes of it when a worker is lost.

Pure and on an injected clock, so that it is tested with thousands of simulated lanes. `driver.py` carries out what it decides.
Candidates are built in order and measured first come, first served; a lane is handed work whenever a built candidate waits.
Code that was already measured is not timed again: the trial gets the outcome of its twin.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from tuner.measure.outcome import Candidate, Failed, FailureKind, Outcome, Timed, Trial
from workers.messages import BuildRequest, Built, Library, Measured, MeasureRequest, Report, Span

MAX_RETRIES = 3  # a candidate that loses its worker more often is quarantined: it is what kills them
BATCH_S = 0.05  # work packed into one message: long against its cost of about a millisecond, short against a planning round
MAX_BATCH = 16
ALTERNATING_CHUNK = 8  # candidates built before a lane that shares its cores with the builder measures them


@dataclass(slots=True, eq=False)
class Item:
    """A candidate on its way."""

    problem: str  # its key
    candidate: Candidate
    lost: list[str] = field(default_factory=list)  # why each attempt so far came to nothing
    library: Library | None = None
    build_s: float = 0.0
    ready_s: float = 0.0  # when it was built, seconds since the epoch
    worker: str = ""


@dataclass(slots=True, eq=False)
class Station:
    """A builder or a runner as the pipeline sees it."""

    name: str
    depth: int  # batches it may hold: one being worked on, the others on their way
    batches: deque[list[Item]] = field(default_factory=deque)
    item_s: float = BATCH_S  # moving average of seconds an item takes
    idle_since: float | None = None  # runners only

    @property
    def load(self) -> int:
        return len(self.batches)

    def room(self, item: Item) -> bool:
        """An item that already lost a worker travels alone, so that it takes nobody along."""
        careful = bool(item.lost) or any(other.lost for batch in self.batches for other in batch)
        return self.load < (1 if careful else self.depth)

    def learn(self, seconds: float) -> None:
        self.item_s += 0.2 * (seconds - self.item_s)

    @property
    def batch_size(self) -> int:
        return max(1, min(MAX_BATCH, int(BATCH_S / max(self.item_s, 1e-4))))


class Pipeline:
    """Not thread-safe; its owner passes events in and carries out what it is told. A batch holds candidates of one problem."""

    def __init__(self, *, builders: Sequence[str], runners: Sequence[str], alternates: bool = False) -> None:
        # A single station holds its next batch already; with several, waiting at one would hinder first come first served.
        self.builders = {name: Station(name, depth=2) for name in builders}
        self.runners = {name: Station(name, depth=2 if len(runners) == 1 else 1) for name in runners}
        self._alternates = alternates
        self._to_build: deque[Item] = deque()
        self._ready: deque[Item] = deque()
        self._in_flight: dict[str, Item] = {}  # library hash -> the item that measures it
        self._twins: dict[str, list[Item]] = {}
        self._known: dict[str, Outcome] = {}
        self._reports: list[Report] = []
        self._spans: list[Span] = []
        self._spent: list[Library] = []
        self._best_s: dict[str, float] = {}  # by problem
        self.paused = False  # nothing new is built while it is set

    def add(self, *, builders: Sequence[str], runners: Sequence[str], alternates: bool) -> None:
        """The stations of a machine that joined. Lanes of several machines hold one batch each."""
        self.builders |= {name: Station(name, depth=2) for name in builders}
        self.runners |= {name: Station(name, depth=1) for name in runners}
        self._alternates = self._alternates or alternates

    def retire(self, worker: str, reason: str) -> None:
        """A station is gone for good: what it held is tried again elsewhere."""
        self.lost(worker, reason)
        self.builders.pop(worker, None)
        self.runners.pop(worker, None)

    # -- what comes in -------------------------------------------------------------------------------------------------------

    def submit(self, problem: str, candidates: Iterable[Candidate], known: Mapping[str, Outcome] | None = None) -> None:
        """Takes candidates of the problem with this key. `known` are outcomes by library hash, from earlier runs."""
        for sha256, outcome in (known or {}).items():
            self._remember(problem, sha256, outcome)
        self._to_build.extend(Item(problem, candidate) for candidate in candidates)

    def built(self, builder: str, results: Sequence[Built]) -> None:
        """The oldest batch of a builder came back."""
        station = self.builders[builder]
        for item, result in zip(station.batches.popleft(), results, strict=True):
            item.build_s = result.ended_s - result.started_s
            item.ready_s = result.ended_s
            station.learn(item.build_s)
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
        station = self.runners[runner]
        for item, result in zip(station.batches.popleft(), results, strict=True):
            held_s = result.ended_s - result.started_s
            station.learn(held_s)
            if station.idle_since is not None and result.started_s > station.idle_since:
                self._spans.append(
                    Span(worker=runner, activity="idle", number=None, started_s=station.idle_since, ended_s=result.started_s)
                )
            station.idle_since = result.ended_s
            self._spans.append(_span(runner, "wait", item, item.ready_s, result.started_s))
            self._spans.append(_span(runner, "time", item, result.started_s, result.ended_s))
            self._settle(item, result.outcome, runner, held_s)

    def lost(self, worker: str, reason: str) -> None:
        """A builder or runner died or did not answer in time: what it held is tried again or ends as infrastructure failure."""
        station = self.builders.get(worker) or self.runners[worker]
        batches, station.batches = station.batches, deque()
        for item in reversed([item for batch in batches for item in batch]):
            if item.library is not None:
                self._in_flight.pop(item.library.sha256, None)
            self._retry(item, f"{worker}: {reason}")

    def abandon(self) -> None:
        """Forgets what is not at a worker; what is, is dropped when it comes back."""
        self._to_build.clear()
        self._ready.clear()
        self._twins.clear()
        for station in (*self.builders.values(), *self.runners.values()):
            for batch in station.batches:
                for item in batch:
                    item.lost.append(ABANDONED)
        self._in_flight.clear()

    # -- what goes out -------------------------------------------------------------------------------------------------------

    def next_build(self) -> tuple[str, str, list[BuildRequest]] | None:
        """The builder, the problem's key and the next batch for it; call until None."""
        if not self._to_build or not self.builders or self.paused or not self._may_build():
            return None
        station = min(self.builders.values(), key=lambda one: one.load)
        if not station.room(self._to_build[0]):
            return None
        share = ceil(len(self._to_build) / (len(self.builders) * station.depth))
        batch = self._take(self._to_build, min(station.batch_size, share))
        station.batches.append(batch)
        requests = [BuildRequest(number=item.candidate.number, config=item.candidate.config or None) for item in batch]
        return station.name, batch[0].problem, requests

    def next_measurement(self) -> tuple[str, str, list[MeasureRequest]] | None:
        """The runner, the problem's key and the next batch for it; call until None."""
        if not self._ready or not self.runners or not self._may_measure():
            return None
        station = min(self.runners.values(), key=lambda one: one.load)
        if not station.room(self._ready[0]):
            return None
        share = ceil(len(self._ready) / (len(self.runners) * station.depth))
        batch = self._take(self._ready, min(station.batch_size, share))
        station.batches.append(batch)
        requests = []
        for item in batch:
            assert item.library is not None
            best_s = self._best_s.get(item.problem)
            requests.append(MeasureRequest(number=item.candidate.number, library=item.library, best_s=best_s))
        return station.name, batch[0].problem, requests

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
    def busy(self) -> bool:
        """Whether anything is at a worker."""
        return any(station.batches for station in (*self.builders.values(), *self.runners.values()))

    # -- inside --------------------------------------------------------------------------------------------------------------

    def _may_build(self) -> bool:
        if not self._alternates:
            return True
        building = sum(len(batch) for station in self.builders.values() for batch in station.batches)
        measuring = any(station.batches for station in self.runners.values())
        return not measuring and len(self._ready) + building < ALTERNATING_CHUNK

    def _may_measure(self) -> bool:
        if not self._alternates:
            return True
        if any(station.batches for station in self.builders.values()):
            return False
        return self.paused or not self._to_build or len(self._ready) >= ALTERNATING_CHUNK or self._measuring()

    def _measuring(self) -> bool:
        return any(station.batches for station in self.runners.values())

    @staticmethod
    def _take(queue: deque[Item], count: int) -> list[Item]:
        batch = [queue.popleft()]
        while queue and len(batch) < count and not batch[0].lost and not queue[0].lost:
            if queue[0].problem != batch[0].problem:
                break
            batch.append(queue.popleft())
        return batch

    def _enqueue(self, item: Item, library: Library) -> None:
        if ABANDONED in item.lost:
            return
        known = self._known.get(library.sha256)
        if known is not None:
            self._finish(item, twin_outcome(known), worker="")
        elif library.sha256 in self._in_flight:
            self._twins.setdefault(library.sha256, []).append(item)
        else:
            self._in_flight[library.sha256] = item
            self._ready.append(item)

    def _settle(self, item: Item, outcome: Outcome, runner: str, held_s: float) -> None:
        """A measurement came back."""
        if ABANDONED in item.lost or item.library is None:
            return
        sha256 = item.library.sha256
        self._in_flight.pop(sha256, None)
        if isinstance(outcome, Failed) and outcome.kind is FailureKind.INFRASTRUCTURE:
            self._retry(item, outcome.message)
            return
        self._remember(item.problem, sha256, outcome)
        self._spent.append(item.library)
        self._finish(item, outcome, worker=runner, measure_s=held_s)
        for twin in self._twins.pop(sha256, []):
            self._finish(twin, twin_outcome(outcome), worker="")

    def _remember(self, problem: str, sha256: str, outcome: Outcome) -> None:
        self._known[sha256] = outcome
        if isinstance(outcome, Timed):
            self._best_s[problem] = min(outcome.median_s, self._best_s.get(problem, outcome.median_s))

    def _retry(self, item: Item, reason: str) -> None:
        if ABANDONED in item.lost:
            return
        item.lost.append(reason)
        if len(item.lost) <= MAX_RETRIES:
            if item.library is None:
                self._to_build.appendleft(item)
            else:
                self._in_flight[item.library.sha256] = item
                self._ready.appendleft(item)
            return
        reasons = "; ".join(dict.fromkeys(item.lost))
        text = f"given up after {len(item.lost)} attempts, each of which lost its worker or the machine's help: {reasons}"
        self._finish(item, Failed(kind=FailureKind.INFRASTRUCTURE, message=text), worker="", quarantined=True)
        if item.library is not None and (twins := self._twins.pop(item.library.sha256, [])):
            first, *others = twins  # its twins are their own trials: the next one gets its own attempts
            if others:
                self._twins[item.library.sha256] = others
            self._in_flight[item.library.sha256] = first
            self._ready.append(first)

    def _finish(self, item: Item, outcome: Outcome, *, worker: str, measure_s: float = 0.0, quarantined: bool = False) -> None:
        if ABANDONED in item.lost:
            return
        number, config = item.candidate.number, item.candidate.config
        trial = Trial(number=number, config=config, outcome=outcome, build_s=item.build_s, measure_s=measure_s)
        attempts = len(item.lost) if quarantined else len(item.lost) + 1
        self._reports.append(Report(problem=item.problem, trial=trial, worker=worker, attempts=attempts, quarantined=quarantined))


ABANDONED = "abandoned"  # as a reason of loss: the search ended while the item was at a worker


def twin_outcome(outcome: Outcome) -> Outcome:
    """The outcome of a trial whose code another trial already measured; timings say so in their conditions."""
    if isinstance(outcome, Timed):
        return replace(outcome, conditions=replace(outcome.conditions, reused=True))
    return outcome


def _span(worker: str, activity: str, item: Item, started_s: float, ended_s: float) -> Span:
    number = item.candidate.number
    return Span(worker=worker, activity=activity, number=number, started_s=started_s, ended_s=max(started_s, ended_s))
