"""Runners: Ray actors that own a lane and measure one candidate at a time.

The actor itself, and all of Ray, stays on the builders' cores. Only the children that the
runner process forks for each candidate (`tuner.measure.runner`) run on the lane's cores.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from tuner.errors import TunerError, UsageError
from tuner.measure.assignment import Assignment, Lane, Placement, Request
from tuner.measure.cache import Cache
from tuner.measure.foreign.examination import Contestant as ForeignContestant
from tuner.measure.foreign.judgement import judge_source
from tuner.measure.foreign.verdict import Verdict, VerdictName
from tuner.measure.outcome import Failed, FailureKind, Outcome
from tuner.measure.race import Contender, RaceResult, Runs, race, rival_contender
from tuner.measure.rivals.rivals import installed_versions
from tuner.measure.runner import RunnerError, RunnerProcess
from tuner.measure.statistics import MIN_ROUNDS, race_median_ci95, ratio_of_medians
from tuner.measure.timing import (
    ABANDON_FACTOR,
    PROMISING_FACTOR,
    PROMOTION,
    SCREENING,
    with_cache,
)
from tuner.workers.fleet.handoff import HandoffMessage, HandoffQueue
from tuner.workers.fleet.machine import near
from tuner.workers.fleet.messages import (
    Disqualified,
    ExaminationOutcome,
    Finalist,
    Library,
    Limits,
    Measured,
    MeasureRequest,
    Problem,
    RaceOutcome,
    Ranked,
    RunExamination,
    RunRace,
)
from tuner.workers.fleet.resident import Residents
from tuner.workers.fleet.shipping import unpacked, unpacked_contestants

ANSWERED = 64  # latest candidates, by which late hand-off messages are recognized
RACE_SAMPLES = 200  # at most, in each process; a thousand in all resolve relevant differences
RACE_WARMUP_S = 0.02  # short, since the check of the outputs called the kernel before
# A race verifies on four kinds of inputs and times ten times longer than a trial.
RACE_TIMEOUT_FACTOR = 3.0


def _finalist(name: str, result: RaceResult) -> Finalist:
    """The result of one contender of a race."""
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
        workspace_bytes=result.workspace_bytes.get(name),
    )


def measurement_request(
    request: MeasureRequest, library: Library, limits: Limits, cache: Cache
) -> Request:
    """The request to a runner process for a trial, whose library is on this machine."""
    return Request(
        name=f"trial {request.number}",
        library=library.path,
        symbol=library.symbol,
        timeout_s=limits.run_timeout_s,
        plan=with_cache(SCREENING, cache),
        abandon_above_s=None if request.best_s is None else request.best_s * ABANDON_FACTOR,
        promising_s=None if request.best_s is None else request.best_s * PROMISING_FACTOR,
    )


def raced(
    control: RunRace, process: Runs, limits: Limits, storage: Path, cache: Cache
) -> RaceOutcome:
    """Runs a race on a prepared runner, whose calls find their caches so.

    `storage` takes libraries that came from another machine.
    """
    timeout_s = RACE_TIMEOUT_FACTOR * limits.run_timeout_s
    warm = replace(
        PROMOTION, budget_s=limits.race_budget_s, warmup_s=RACE_WARMUP_S, max_samples=RACE_SAMPLES
    )
    compared = control.rivals is not None
    with unpacked_contestants(control.contestants, storage) as contestants:
        contenders = [
            Contender(
                name=contestant.name,
                library=contestant.path,
                symbol=contestant.symbol,
                timeout_s=timeout_s,
            )
            for contestant in contestants
        ]
        contenders += [rival_contender(name) for name in control.rivals or ()]
        result = race(
            contenders,
            process,
            rounds=limits.race_rounds if control.default or compared else MIN_ROUNDS,
            plan=with_cache(warm, cache),
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
    gone = f"{control.default} dropped out; " if control.default else ""
    reason = f"{gone}the fastest that is verified"
    own = result.rounds.get(control.incumbent or "", ()) if compared else ()
    ratios = {
        name: ratio_of_medians(rounds, own)
        for name, rounds in result.rounds.items()
        if own and name != control.incumbent
    }
    return RaceOutcome(
        finalists=finalists,
        winner=winner,
        reason=reason,
        ratios=ratios,
        versions=installed_versions() if compared else {},
    )


def examined(
    control: RunExamination, storage: Path, judge: Callable[[ForeignContestant], Verdict]
) -> ExaminationOutcome:
    """The verdict on a stranger's kernel, or that the machine failed.

    `judge(rival)` gives it. `storage` takes a library that came from another machine.
    """
    with unpacked_contestants(control.contestants, storage) as (rival,):
        try:
            verdict = judge(
                ForeignContestant(
                    name=rival.name, library=rival.path, symbol=rival.symbol, foreign=False
                )
            )
        except TunerError as error:
            verdict = Verdict(name=VerdictName.INFRASTRUCTURE, message=str(error))
    return ExaminationOutcome(verdict=verdict)


class Runner:
    """The actor of a lane of cores.

    Ray runs its methods one after the other, except `prefetch`. A thread begins with
    candidates that builders hand over.
    """

    def __init__(
        self, *, lane: Lane, home_cores: tuple[int, ...], limits: Limits, storage: str
    ) -> None:
        """`storage`: directory for libraries that come from other machines."""
        os.sched_setaffinity(0, home_cores)
        self._lane = lane
        self._limits = limits
        self._storage = Path(storage)
        self._home_cores = home_cores
        self._near_cores = near(home_cores, lane)
        first = RunnerProcess()
        first.start()
        self._residents = Residents(first)
        self._problems: dict[str, Problem] = {}
        self._busy = threading.Lock()  # held while the lane is in use
        # A measurement begun by a hand-off message that was not requested yet.
        self._begun: tuple[HandoffMessage, Measured] | None = None
        # Problem and number of the latest requests.
        self._answered: deque[tuple[str, int]] = deque(maxlen=ANSWERED)
        self._handoffs = HandoffQueue(self._storage, lane.name)
        threading.Thread(target=self._read_handoffs, daemon=True, name="handoffs").start()

    def describe(self) -> dict[str, int | str]:
        """Name, process ids and the isolation of candidates, or why it is `refused`."""
        with self._busy, self._residents.at_hand() as process:
            if process is None:
                raise RuntimeError("a runner describes itself before it gets a workload")
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
        """Seconds of the calibration kernel on each of the lane's cores.

        Empty if no runner process is available.
        """
        with self._busy, self._residents.at_hand() as process:
            try:
                return () if process is None else process.calibrate(self._lane.cores)
            except RunnerError:
                return ()

    def load(self, problem: Problem) -> None:
        self._problems[problem.key] = problem

    def prefetch(self, problem: Problem) -> None:
        """Prepares a workload while another one may be measured.

        The only method that Ray runs beside the others. The first workload is prepared on
        the lane, where nothing can be measured yet. Without a core near the lane, nothing
        is done, and the first candidate waits.
        """
        os.sched_setaffinity(0, self._home_cores)  # of this thread, which Ray made
        self._problems[problem.key] = problem
        if not self._residents.keys:
            self._residents.prefetch(problem.key, self._assignment(problem), ())
        elif self._near_cores:
            self._residents.prefetch(problem.key, self._assignment(problem), self._near_cores)

    def foresee_race(self, problem_key: str) -> None:
        """Prepares the references of a race while its contestants are built.

        If that fails, the race reports the reason.
        """
        with self._busy, suppress(TunerError):
            process = self._prepare(problem_key)
            if not isinstance(process, Failed):
                process.prepare_promotion()

    @property
    def prepared_keys(self) -> tuple[str, ...]:
        """Problems that are prepared on this lane, the last used one at the end."""
        return self._residents.keys

    def measure(self, problem_key: str, requests: Sequence[MeasureRequest]) -> list[Measured]:
        """Measures the candidates in this order.

        One that a hand-off message began is returned as it was measured then.
        """
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
                # The driver replaces this runner, and the promotion tries again.
                raise RuntimeError(process.message)
            cache = self._problems[problem_key].cache
            return [raced(control, process, self._limits, self._storage, cache) for control in asks]

    def examine(self, problem_key: str, asks: Sequence[RunExamination]) -> list[ExaminationOutcome]:
        """Judges strangers' kernels, in processes that never had a reference."""
        assignment = self._assignment(self._problems[problem_key])
        placement = Placement(
            lane=assignment.lane,
            threads=assignment.threads,
            isolation=assignment.isolation,
            memory_bytes=assignment.memory_bytes,
        )

        def judged(ask: RunExamination, rival: ForeignContestant) -> Verdict:
            return judge_source(
                assignment.workload,
                ask.source,
                ask.symbol,
                placement,
                rival=rival,
                timeout_s=self._limits.run_timeout_s,
            )

        with self._busy:
            return [examined(ask, self._storage, partial(judged, ask)) for ask in asks]

    def close(self) -> None:
        self._handoffs.close()
        self._residents.close()

    def measurement_request(
        self, request: MeasureRequest, library: Library, cache: Cache
    ) -> Request:
        """The request to the runner process for a trial."""
        return measurement_request(request, library, self._limits, cache)

    def _read_handoffs(self) -> None:
        """Begins with candidates that builders hand over while the lane is free for them."""
        for handoff in self._handoffs.handoffs():
            if self._busy.acquire(blocking=False):
                try:
                    if self._may_begin(handoff):
                        self._begun = handoff, self._measured(handoff.problem, handoff.request)
                finally:
                    self._busy.release()

    def _may_begin(self, handoff: HandoffMessage) -> bool:
        """Whether to measure a candidate before it is requested.

        Not if a measurement was begun and not requested yet, which must not be lost.
        """
        if self._begun is not None or handoff.problem not in self._problems:
            return False
        if (handoff.problem, handoff.request.number) in self._answered:
            return False
        return self._residents.holds(handoff.problem)

    def _answer(self, problem_key: str, request: MeasureRequest) -> Measured | None:
        """The measurement that a hand-off message began, if it is of this request.

        The caller must hold the lane.
        """
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
        # Preparing inputs and reference, once a workload, is not the candidate's time.
        started_s, waited_s = time.monotonic(), 0.0
        if isinstance(process, Failed):
            outcome: Outcome = process
        else:
            before_s = process.waited_s
            outcome = self._measure(process, request, self._problems[problem_key].cache)
            waited_s = process.waited_s - before_s
        return Measured(
            number=request.number,
            outcome=outcome,
            started_s=started_s + waited_s,
            ended_s=time.monotonic(),
            waited_s=waited_s,
        )

    def _measure(self, process: RunnerProcess, request: MeasureRequest, cache: Cache) -> Outcome:
        library = unpacked(request.library, self._storage)
        try:
            return process.measure(self.measurement_request(request, library, cache))
        finally:
            if library is not request.library:
                Path(library.path).unlink(missing_ok=True)

    def _prepare(self, problem_key: str) -> RunnerProcess | Failed:
        """The runner process that holds the workload, or why it cannot be prepared."""
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
