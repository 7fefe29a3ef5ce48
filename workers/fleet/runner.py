"""Runners: a Ray actor that owns a lane and measures one candidate at a time on it.

The actor itself, and all of Ray, stays on the builders' cores. The lane's cores are
entered by the children alone that the runner process forks for each candidate
(tuner.measure.runner).
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tuner.errors import TunerError, UsageError
from tuner.measure.assignment import Assignment, Lane, Request
from tuner.measure.outcome import Failed, FailureKind, Outcome
from tuner.measure.race import Contender, RaceResult, Runs, race
from tuner.measure.runner import RunnerError, RunnerProcess
from tuner.measure.statistics import race_median_ci95
from tuner.measure.timing import ABANDON_FACTOR, PROMISING_FACTOR, PROMOTION
from tuner.workers.fleet.handoff import HandoffMessage, HandoffQueue
from tuner.workers.fleet.machine import near
from tuner.workers.fleet.messages import (
    Disqualified,
    Finalist,
    Library,
    Limits,
    Measured,
    MeasureRequest,
    Problem,
    RaceOutcome,
    Ranked,
    RunRace,
)
from tuner.workers.fleet.resident import Residents
from tuner.workers.fleet.shipping import unpacked, unpacked_contestant

ANSWERED = 64  # candidates that a late hand-off message is held against
RACE_SAMPLES = 200  # at most, in each process: a thousand in all tell apart what matters
RACE_WARMUP_S = 0.02  # calls of the outputs' check came before
RACE_TIMEOUT_FACTOR = (
    3.0  # a race verifies on four kinds of inputs and times ten times longer than screening
)


def _finalist(name: str, result: RaceResult) -> Finalist:
    """What a race says about one of its contenders."""
    if name in result.failed:
        return Disqualified(name=name, failure=result.failed[name])
    rounds = result.rounds[name]
    median_s, ci95_s = race_median_ci95(rounds)
    error, samples = result.max_rel_error[name], sum(map(len, rounds))
    return Ranked(
        name=name,
        median_s=median_s,
        ci95_s=ci95_s,
        max_rel_error=error,
        samples=samples,
    )


def measurement_request(request: MeasureRequest, library: Library, limits: Limits) -> Request:
    """What a runner process is asked for a trial, whose library is on this machine."""
    return Request(
        name=f"trial {request.number}",
        library=library.path,
        symbol=library.symbol,
        timeout_s=limits.run_timeout_s,
        abandon_above_s=None if request.best_s is None else request.best_s * ABANDON_FACTOR,
        promising_s=None if request.best_s is None else request.best_s * PROMISING_FACTOR,
    )


def raced(control: RunRace, process: Runs, limits: Limits, storage: Path) -> RaceOutcome:
    """The race that was asked for, on a runner that is prepared; `storage` takes
    libraries that came from another machine."""
    timeout_s = RACE_TIMEOUT_FACTOR * limits.run_timeout_s
    plan = replace(
        PROMOTION, budget_s=limits.race_budget_s, warmup_s=RACE_WARMUP_S, max_samples=RACE_SAMPLES
    )
    contestants = [unpacked_contestant(packed, storage) for packed in control.contestants]
    contenders = [
        Contender(
            name=contestant.name,
            library=contestant.path,
            symbol=contestant.symbol,
            timeout_s=timeout_s,
        )
        for contestant in contestants
    ]
    result = race(
        contenders,
        process,
        rounds=limits.race_rounds,
        plan=plan,
        default=control.default,
        incumbent=control.incumbent,
    )
    finalists = tuple(_finalist(contender.name, result) for contender in contenders)
    if result.decision is not None:
        return RaceOutcome(
            finalists=finalists, winner=result.decision.winner, reason=result.decision.reason
        )
    ranked = [finalist for finalist in finalists if isinstance(finalist, Ranked)]
    winner = min(ranked, key=lambda finalist: finalist.median_s).name if ranked else None
    reason = "the default schedule dropped out; the fastest that is verified"
    return RaceOutcome(finalists=finalists, winner=winner, reason=reason)


class Runner:
    """The actor. Ray runs its methods one after the other, except `prefetch`; a thread
    begins with what builders hand over."""

    def __init__(
        self, *, lane: Lane, home_cores: tuple[int, ...], limits: Limits, storage: str
    ) -> None:
        """`storage`: directory for libraries that come from other machines."""
        os.sched_setaffinity(0, home_cores)
        self._lane, self._limits, self._storage = lane, limits, Path(storage)
        self._home_cores, self._near_cores = home_cores, near(home_cores, lane)
        first = RunnerProcess()
        first.start()
        self._residents = Residents(first)
        self._problems: dict[str, Problem] = {}
        self._busy = threading.Lock()  # held by who uses the lane
        self._begun: tuple[HandoffMessage, Measured] | None = (
            None  # by a hand-off message, and not asked for yet
        )
        self._answered: deque[tuple[str, int]] = deque(
            maxlen=ANSWERED
        )  # problem and number of what was asked for last
        self._letterbox = HandoffQueue(self._storage, lane.name)
        threading.Thread(target=self._read_handoffs, daemon=True, name="letters").start()

    def describe(self) -> dict[str, int | str]:
        """Name, process ids and the isolation its candidates will have, or `refused`:
        why it cannot have what is wanted."""
        with self._busy, self._residents.at_hand() as process:
            if process is None:
                raise RuntimeError("a runner describes itself before it is given a workload")
            description: dict[str, int | str] = {
                "name": self._lane.name,
                "pid": os.getpid(),
                "process_pid": process.pid or 0,
            }
            try:
                return description | {"isolation": process.isolate(self._limits.isolation)}
            except UsageError as error:
                return description | {"refused": str(error)}

    def calibrate(self) -> tuple[float, ...]:
        """Seconds of the calibration kernel on each of the lane's cores; nothing where
        no runner process has the time."""
        with self._busy, self._residents.at_hand() as process:
            try:
                return () if process is None else process.calibrate(self._lane.cores)
            except RunnerError:
                return ()

    def load(self, problem: Problem) -> None:
        self._problems[problem.key] = problem

    def prefetch(self, problem: Problem) -> None:
        """Prepares a workload while another one may be measured: the only method that
        Ray runs beside the others.

        The first one is made on the lane, where nothing can be measured yet. Where no
        core for it is near, nothing is done: the first candidate waits then.
        """
        os.sched_setaffinity(0, self._home_cores)  # of this thread, which Ray made
        self._problems[problem.key] = problem
        if not self._residents.keys:
            self._residents.prefetch(problem.key, self._assignment(problem), ())
        elif self._near_cores:
            self._residents.prefetch(problem.key, self._assignment(problem), self._near_cores)

    def foresee_race(self, problem_key: str) -> None:
        """Makes what a race verifies by while its contestants are built; where that
        fails, the race will say why."""
        with self._busy, suppress(TunerError):
            process = self._prepare(problem_key)
            if not isinstance(process, Failed):
                process.prepare_promotion()

    @property
    def prepared_keys(self) -> tuple[str, ...]:
        """Problems that are ready on this lane, the last used one at the end."""
        return self._residents.keys

    def measure(self, problem_key: str, requests: Sequence[MeasureRequest]) -> list[Measured]:
        """In this order; what a hand-off message made the lane begin with is given as it was
        measured then."""
        measured = []
        for request in requests:
            with self._busy:
                begun = self._answer(problem_key, request)
                measured.append(self._measured(problem_key, request) if begun is None else begun)
        return measured

    def race(self, problem_key: str, asks: Sequence[RunRace]) -> list[RaceOutcome]:
        with self._busy:
            process = self._prepare(problem_key)
            if isinstance(process, Failed):
                raise RuntimeError(
                    process.message
                )  # the driver replaces this runner and the promotion asks again
            return [raced(control, process, self._limits, self._storage) for control in asks]

    def close(self) -> None:
        self._letterbox.close()
        self._residents.close()

    def measurement_request(self, request: MeasureRequest, library: Library) -> Request:
        """What the runner process is asked for a trial."""
        return measurement_request(request, library, self._limits)

    def _read_handoffs(self) -> None:
        """Begins with each candidate that a builder hands over while the lane is free
        and ready for it."""
        for handoff in self._letterbox.handoffs():
            if self._busy.acquire(blocking=False):
                try:
                    expected = (
                        handoff.problem,
                        handoff.request.number,
                    ) not in self._answered and handoff.problem in self._problems
                    # What was begun before and not asked for yet must not be lost: this
                    # hand-off message's candidate comes by the driver.
                    if self._begun is None and expected and self._residents.holds(handoff.problem):
                        self._begun = handoff, self._measured(handoff.problem, handoff.request)
                finally:
                    self._busy.release()

    def _answer(self, problem_key: str, request: MeasureRequest) -> Measured | None:
        """What a hand-off message made the lane begin with, where it is this; by
        whoever holds the lane."""
        begun, self._begun = self._begun, None
        self._answered.append((problem_key, request.number))
        if begun is None:
            return None
        handoff, measured = begun
        same = (handoff.problem, handoff.request.number, handoff.request.library) == (
            problem_key,
            request.number,
            request.library,
        )
        return measured if same else None

    def _measured(self, problem_key: str, request: MeasureRequest) -> Measured:
        process = self._prepare(problem_key)
        started = (
            time.time()
        )  # making inputs and reference, once a workload, is not the candidate's time
        outcome = process if isinstance(process, Failed) else self._measure(process, request)
        return Measured(
            number=request.number, outcome=outcome, started_s=started, ended_s=time.time()
        )

    def _measure(self, process: RunnerProcess, request: MeasureRequest) -> Outcome:
        library = unpacked(request.library, self._storage)
        try:
            return process.measure(self.measurement_request(request, library))
        finally:
            if library is not request.library:
                Path(library.path).unlink(missing_ok=True)

    def _prepare(self, problem_key: str) -> RunnerProcess | Failed:
        """The runner process that holds the workload, which may be a new one."""
        try:
            return self._residents.prepared(
                problem_key, self._assignment(self._problems[problem_key])
            )
        except TunerError as error:
            return Failed(kind=FailureKind.INFRASTRUCTURE, message=str(error))

    def _assignment(self, problem: Problem) -> Assignment:
        return Assignment(
            workload=problem.workload,
            lane=self._lane,
            threads=problem.threads,
            seed=problem.seed,
            memory_bytes=self._limits.memory_bytes,
            isolation=self._limits.isolation,
        )
