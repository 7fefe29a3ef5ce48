"""What actors share whose lane is not a core of this machine: a GPU, or another machine.

They have the methods of `Runner`. A subclass says how its lane is prepared for a problem,
how a candidate is measured, and what takes part in races.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from tuner.errors import TunerError
from tuner.measure.assignment import Lane, Request
from tuner.measure.cache import Cache
from tuner.measure.outcome import Failed, FailureKind, Outcome
from tuner.measure.race import Runs
from tuner.workers.fleet.messages import (
    Limits,
    Measured,
    MeasureRequest,
    Problem,
    RaceOutcome,
    RunRace,
)
from tuner.workers.fleet.runner import measurement_request, raced
from tuner.workers.fleet.shipping import unpacked


class LaneRunner(ABC):
    """Measures one candidate after the other, as Ray calls it."""

    def __init__(self, *, lane: Lane, limits: Limits, storage: str) -> None:
        """`storage`: directory for libraries that come from other machines."""
        self._lane = lane
        self._limits = limits
        self._storage = Path(storage)
        self._problems: dict[str, Problem] = {}
        self._prepared = ""  # key of the problem that the lane is prepared for

    def load(self, problem: Problem) -> None:
        self._problems[problem.key] = problem

    def measure(self, problem_key: str, requests: Sequence[MeasureRequest]) -> list[Measured]:
        measured = []
        for request in requests:
            refusal = self._prepare(problem_key)
            # Preparing inputs and reference, once a workload, is not the candidate's time.
            started_s = time.monotonic()
            cache = self._problems[problem_key].cache
            outcome = refusal if refusal is not None else self._measure(request, cache)
            measured.append(
                Measured(
                    number=request.number,
                    outcome=outcome,
                    started_s=started_s,
                    ended_s=time.monotonic(),
                )
            )
        return measured

    def race(self, problem_key: str, asks: Sequence[RunRace]) -> list[RaceOutcome]:
        refusal = self._prepare(problem_key)
        if refusal is not None:
            # The driver replaces this runner, and the promotion tries again.
            raise RuntimeError(refusal.message)
        cache = self._problems[problem_key].cache
        return [
            raced(control, self.contender(), self._limits, self._storage, cache) for control in asks
        ]

    @abstractmethod
    def prepare(self, problem: Problem) -> None:
        """Makes inputs and reference. Raises TunerError where the lane cannot."""

    @abstractmethod
    def outcome(self, request: Request) -> Outcome:
        """Of one candidate of the prepared problem."""

    @abstractmethod
    def contender(self) -> Runs:
        """What a race runs on."""

    def _measure(self, request: MeasureRequest, cache: Cache) -> Outcome:
        library = unpacked(request.library, self._storage)
        try:
            return self.outcome(measurement_request(request, library, self._limits, cache))
        finally:
            if library is not request.library:
                Path(library.path).unlink(missing_ok=True)

    def _prepare(self, problem_key: str) -> Failed | None:
        """Prepares the lane unless it is prepared; the failure if there is one."""
        if self._prepared == problem_key:
            return None
        problem, self._prepared = self._problems[problem_key], ""
        try:
            self.prepare(problem)
        except TunerError as error:
            return Failed(kind=FailureKind.INFRASTRUCTURE, message=str(error))
        self._prepared = problem_key
        return None
