"""Runners: a Ray actor that owns a lane and measures one candidate at a time on it.

The actor itself, and all of Ray, stays on the builders' cores. The lane's cores are entered by the children alone that the runner
process forks for each candidate (tuner.measure.runner).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from tuner.errors import TunerError
from tuner.measure.assignment import Assignment, Lane, Request
from tuner.measure.outcome import Failed, FailureKind, Outcome
from tuner.measure.runner import RunnerProcess
from tuner.measure.timing import ABANDON_FACTOR
from workers.messages import Limits, Measured, MeasureRequest, Problem


class Runner:
    """The actor. Ray runs its methods one after the other."""

    def __init__(self, *, lane: Lane, home_cores: tuple[int, ...], limits: Limits) -> None:
        os.sched_setaffinity(0, home_cores)
        self._lane, self._limits = lane, limits
        self._process = RunnerProcess()
        self._process.start()
        self._problems: dict[str, Problem] = {}
        self._prepared: str | None = None

    def describe(self) -> dict[str, int | str]:
        return {"name": self._lane.name, "pid": os.getpid(), "process_pid": self._process.pid or 0}

    def load(self, problem: Problem) -> None:
        self._problems[problem.key] = problem

    def measure(self, problem_key: str, requests: Sequence[MeasureRequest]) -> list[Measured]:
        measured = []
        for request in requests:
            refusal = self._prepare(problem_key)
            started = time.time()  # making inputs and reference, once a workload, is not the candidate's time
            outcome = refusal if refusal is not None else self._measure(request)
            measured.append(Measured(number=request.number, outcome=outcome, started_s=started, ended_s=time.time()))
        return measured

    def close(self) -> None:
        self._process.close()

    def _measure(self, request: MeasureRequest) -> Outcome:
        library, best_s = request.library, request.best_s
        wanted = Request(
            name=f"trial {request.number}",
            library=library.path,
            symbol=library.symbol,
            timeout_s=self._limits.run_timeout_s,
            abandon_above_s=None if best_s is None else best_s * ABANDON_FACTOR,
        )
        return self._process.measure(wanted)

    def _prepare(self, problem_key: str) -> Failed | None:
        """Gives the runner process its workload where it has another one."""
        if self._prepared == problem_key:
            return None
        problem = self._problems[problem_key]
        self._prepared = None
        assignment = Assignment(
            workload=problem.workload,
            lane=self._lane,
            threads=problem.threads,
            seed=problem.seed,
            memory_bytes=self._limits.memory_bytes,
        )
        try:
            self._process.prepare(assignment)
        except TunerError as error:
            return Failed(kind=FailureKind.INFRASTRUCTURE, message=str(error))
        self._prepared = problem_key
        return None
