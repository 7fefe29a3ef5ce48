"""Outcomes of candidates: reports, retries, and reuse for equal code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tuner.measure.cache import Cache
from tuner.measure.outcome import Failed, FailureKind, Outcome, Timed, Trial
from tuner.workers.fleet.candidates import Item, timed_code
from tuner.workers.fleet.dedup import Deduplication
from tuner.workers.fleet.messages import Library, Report, Span

# A candidate that loses its worker more often is quarantined, since it is the cause.
MAX_RETRIES = 3


class Outcomes:
    """Collects reports, spans and libraries that are no longer needed."""

    def __init__(self) -> None:
        self.deduplication = Deduplication()
        self._reports: list[Report] = []
        self._spans: list[Span] = []
        self._spent: list[Library] = []
        self._best_s: dict[str, float] = {}  # by problem

    def best_s(self, problem: str) -> float | None:
        """The best median so far."""
        return self._best_s.get(problem)

    def remember(self, problem: str, outcomes: Mapping[str, Outcome], cache: Cache) -> None:
        """Outcomes by library hash, from earlier runs with these caches."""
        for sha256, outcome in outcomes.items():
            self.deduplication.remember(timed_code(sha256, cache), outcome)
            self._note_time(problem, outcome)

    def add_span(
        self, worker: str, activity: str, item: Item, start_s: float, end_s: float
    ) -> None:
        """Adds an activity of a worker for a candidate."""
        number = None if activity == "idle" else item.candidate.number
        self.add(
            Span(
                worker=worker,
                activity=activity,
                number=number,
                started_s=start_s,
                ended_s=max(start_s, end_s),
                job=item.job,
            )
        )

    def add(self, span: Span) -> None:
        self._spans.append(span)

    def built(self, item: Item, library: Library) -> None:
        """Takes a candidate's library: it waits for a lane, or for the outcome of equal code."""
        item.library = library
        if item.abandoned:
            return
        outcome = self.deduplication.outcome(item.timed_code)
        if outcome is not None:
            self.finish(item, outcome, worker="")
        elif not self.deduplication.waits(item, item.timed_code):
            self.deduplication.begin(item, item.timed_code)
            item.queue.is_ready(item)

    def measured(self, item: Item, outcome: Outcome, runner: str, held_s: float) -> None:
        """Takes the outcome of a measurement that held the lane for so long."""
        if item.abandoned or item.library is None:
            return
        code = item.timed_code
        if isinstance(outcome, Failed) and outcome.kind is FailureKind.INFRASTRUCTURE:
            self.deduplication.interrupted(code)
            self.retry(item, outcome.message)
            return
        self._note_time(item.problem, outcome)
        self._spent.append(item.library)
        self.finish(item, outcome, worker=runner, measure_s=held_s)
        for duplicate, reused in self.deduplication.ended(code, outcome):
            self.finish(duplicate, reused, worker="")

    def retry(self, item: Item, reason: str) -> None:
        """Queues a candidate that lost its worker again, or gives it up."""
        if item.abandoned:
            return
        item.lost.append(reason)
        item.lane = ""
        if len(item.lost) <= MAX_RETRIES:
            self.wait_again(item)
            return
        reasons = "; ".join(dict.fromkeys(item.lost))
        text = (
            f"given up after {len(item.lost)} attempts, each of which lost its worker or the "
            f"machine's help: {reasons}"
        )
        failed = Failed(kind=FailureKind.INFRASTRUCTURE, message=text)
        self.finish(item, failed, worker="", quarantined=True)
        if item.library is not None:
            successor = self.deduplication.successor(item.timed_code)
            if successor is not None:
                successor.queue.is_ready(successor)

    def wait_again(self, item: Item) -> None:
        """Puts a candidate at the front of the queue in which it waited."""
        if item.library is None:
            item.queue.to_build.appendleft(item)
        else:
            self.deduplication.begin(item, item.timed_code)
            item.queue.is_ready(item, again=True)

    def finish(
        self,
        item: Item,
        outcome: Outcome,
        *,
        worker: str,
        measure_s: float = 0.0,
        quarantined: bool = False,
    ) -> None:
        """Reports a candidate's trial."""
        if item.abandoned:
            return
        # Without a lane, the fleet spent only the build on it.
        if not worker or item.library is None:
            item.queue.account.charged_s += item.build_s
        trial = Trial(
            number=item.candidate.number,
            config=item.candidate.config,
            outcome=outcome,
            build_s=item.build_s,
            measure_s=measure_s,
        )
        self._reports.append(
            Report(
                problem=item.problem,
                trial=replace(trial, resources=item.resources, code_bytes=item.code_bytes),
                worker=worker,
                attempts=len(item.lost) if quarantined else len(item.lost) + 1,
                quarantined=quarantined,
                job=item.job,
            )
        )

    def collect(self) -> tuple[list[Report], list[Span]]:
        """Reports and spans since the last call."""
        reports, self._reports = self._reports, []
        spans, self._spans = self._spans, []
        return reports, spans

    def spent(self) -> list[Library]:
        """Libraries that are no longer needed since the last call."""
        spent, self._spent = self._spent, []
        return spent

    def _note_time(self, problem: str, outcome: Outcome) -> None:
        if isinstance(outcome, Timed):
            before_s = self._best_s.get(problem, outcome.median_s)
            self._best_s[problem] = min(outcome.median_s, before_s)
