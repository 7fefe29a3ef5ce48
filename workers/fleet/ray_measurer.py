"""`RayMeasurer`, which measures candidates on the builders and runners of a fleet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tuner.measure.outcome import Candidate, Outcome, Timed, Trial
from tuner.workers.fleet.handle import DriverLost, Fleet
from tuner.workers.fleet.job_share import JobChannel
from tuner.workers.fleet.messages import (
    Calibrated,
    Control,
    ControlReply,
    Finished,
    Problem,
    Report,
    Span,
    Submit,
)
from tuner.workers.fleet.notices import DriverReplaced, Notice


class RayMeasurer:
    """A `tuner.measure.measurer.Measurer` for one problem, on the caller's fleet.

    `known_outcomes` are outcomes of libraries by hash, from recorded trials; candidates
    that compile to the same code reuse them. `judge` may change each trial, for example if
    its timing is implausible.
    """

    def __init__(
        self,
        fleet: Fleet | JobChannel,
        problem: Problem,
        *,
        known_outcomes: Mapping[str, Outcome] | None = None,
        judge: Callable[[Trial], Trial] = lambda trial: trial,
        on_spans: Callable[[Sequence[Span]], None] | None = None,
        on_notice: Callable[[Notice], None] | None = None,
        on_calibrations: Callable[[Sequence[Calibrated]], None] | None = None,
    ) -> None:
        self._fleet = fleet
        self._problem = problem
        self._known_outcomes: dict[str, Outcome] = dict(known_outcomes or {})
        self._judge = judge
        self._sent_outcomes = False  # whether the driver has `known_outcomes`
        self._flying: dict[int, Candidate] = {}
        self._reports: dict[int, Report] = {}
        self._on_spans = on_spans
        self._on_notice = on_notice
        self._on_calibrations = on_calibrations

    @property
    def capacity(self) -> int:
        """Two batches for each worker, and a few candidates that wait in between."""
        builders, lanes = self._fleet.slots
        return 4 + 2 * builders + 3 * lanes

    def submit(self, candidates: Sequence[Candidate]) -> None:
        if candidates:
            self._flying |= {candidate.number: candidate for candidate in candidates}
            self._send(candidates)

    def _send(self, candidates: Sequence[Candidate]) -> None:
        known_outcomes = {} if self._sent_outcomes else self._known_outcomes
        self._sent_outcomes = True
        self._fleet.submit(
            Submit(
                problem=self._problem, candidates=tuple(candidates), known_outcomes=known_outcomes
            )
        )

    def results(self, *, timeout_s: float) -> Iterator[Trial]:
        deadline = time.monotonic() + timeout_s
        while self._flying:
            message = self._fleet.receive(deadline - time.monotonic())
            if message is None:
                if time.monotonic() >= deadline:
                    return
                continue
            for trial in self._handle(message):
                yield trial
                deadline = time.monotonic() + timeout_s

    def _handle(self, message: Finished | Notice | DriverLost | ControlReply) -> Iterator[Trial]:
        match message:
            case Finished(reports=reports, spans=spans, calibrations=calibrations):
                if self._on_spans is not None and spans:
                    self._on_spans(spans)
                if self._on_calibrations is not None and calibrations:
                    self._on_calibrations(calibrations)
                for report in reports:
                    ours = report.problem == self._problem.key
                    if ours and (flying := self._flying.pop(report.trial.number, None)) is not None:
                        self._note(report)
                        # The config as it was sent: its names and values are the
                        # space's own, those that came back are copies.
                        yield self._judge(replace(report.trial, config=flying.config))
            case Notice():
                if self._on_notice is not None:
                    self._on_notice(message)
            case DriverLost(reason=reason):
                if self._on_notice is not None:
                    self._on_notice(DriverReplaced(message=reason))
                self._fleet.restart()
                self._sent_outcomes = False
                self._send(tuple(self._flying.values()))

    def _note(self, report: Report) -> None:
        self._reports[report.trial.number] = report
        outcome = report.trial.outcome
        if isinstance(outcome, Timed) and not outcome.conditions.reused:
            self._known_outcomes[outcome.artifact] = outcome

    def report(self, number: int) -> Report:
        """The report of a trial that was yielded; can be taken once."""
        return self._reports.pop(number)

    def request_control(
        self,
        what: Control,
        *,
        timeout_s: float,
        check: Callable[[], None] | None = None,
    ) -> ControlReply:
        """Sends a control request to the fleet and waits; no candidate may be in flight."""
        answer = self._fleet.request_control(self._problem, what, timeout_s=timeout_s, check=check)
        if self._on_spans is not None and answer.spans:
            self._on_spans(answer.spans)
        return answer

    def close(self) -> None:
        if self._flying:
            self._flying.clear()
            self._fleet.abandon()
