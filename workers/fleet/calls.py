"""Calls of actors: each has a deadline, and its return is an event."""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from tuner.workers.fleet.actors import Worker
from tuner.workers.fleet.messages import Abandon, Built, ControlRequest, Measured, Problem, Submit

Result = TypeVar("Result", Built, Measured)
Message = Submit | Abandon | ControlRequest
Purpose = Literal["work", "calibration", "description", "preparation", "foresight"]


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A message of the orchestrator, or None when the channel has ended."""

    message: Message | None


@dataclass(frozen=True, slots=True)
class CallReturned:
    """An actor's call ended."""

    worker: str
    generation: int
    future: Future[Any]
    control: ControlRequest | None = None  # answered by this call
    purpose: Purpose = "work"  # a batch of the pipeline, or part of a control request's answer
    problem: str = ""  # that a lane was prepared for


Events = queue.SimpleQueue[MessageReceived | CallReturned]


def on_this_clock(results: Sequence[Result], now_s: float) -> list[Result]:
    """A batch of another machine on this machine's steady clock; its last one ended `now_s`.

    Each machine's steady clock counts from its own start. Durations are the other
    machine's; the way of the results to here, some milliseconds, counts as before them.
    """
    ahead_s = now_s - results[-1].ended_s
    return [
        replace(result, started_s=result.started_s + ahead_s, ended_s=result.ended_s + ahead_s)
        for result in results
    ]


class WorkerCalls:
    """Sends work to actors; their returns are put into the queue of events."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._problems: dict[str, Problem] = {}  # all that were submitted, by key

    def know(self, problem: Problem) -> None:
        """Keeps a problem, to be sent to workers later."""
        self._problems[problem.key] = problem

    def work(
        self,
        worker: Worker,
        method: str,
        problem: str,
        requests: Sequence[object],
        *,
        control: ControlRequest | None = None,
        items: float | None = None,
        limit_s: float = 0.0,
    ) -> None:
        """Gives a worker a batch.

        Its time limit is that of `items` requests (None: of as many as there are), and
        `limit_s` more.
        """
        # A builder that has a part of a control request may get other builds behind it.
        if control is not None:
            worker.control, worker.control_since_s = control, time.monotonic()
        first = self._load(worker, problem)
        future: Future[Any] = getattr(worker.handle, method).remote(problem, requests).future()
        count = len(requests) if items is None else items
        worker.deadlines.append(time.monotonic() + worker.limit_s(count, first=first) + limit_s)
        self._await(CallReturned(worker.name, worker.generation, future, control))

    def prepare(self, worker: Worker, problem: str) -> None:
        """Prepares a workload on a lane beside what it measures."""
        future = worker.prepare(self._problems[problem])
        self._await(
            CallReturned(
                worker.name, worker.generation, future, purpose="preparation", problem=problem
            )
        )

    def foresee_race(self, worker: Worker, problem: str) -> None:
        """Prepares on a lane what the contestants of a race are verified by."""
        self._load(worker, problem)
        worker.deadlines.append(time.monotonic() + worker.limit_s(1, first=True))
        future = worker.handle.foresee_race.remote(problem).future()
        self._await(CallReturned(worker.name, worker.generation, future, purpose="foresight"))

    def describe(self, worker: Worker) -> None:
        """Asks a worker for its description, the first call after it joined or was replaced."""
        worker.calibrating = False
        self._inquire(worker, worker.handle.describe.remote(), "description", first=True)

    def calibrate(self, worker: Worker) -> None:
        """Times the calibration kernel on a lane, between two of its batches."""
        worker.calibrating = True
        self._inquire(worker, worker.handle.calibrate.remote(), "calibration", first=False)

    def _inquire(self, worker: Worker, reference: Any, purpose: Purpose, *, first: bool) -> None:
        worker.deadlines.append(time.monotonic() + worker.limit_s(1, first=first))
        self._await(
            CallReturned(worker.name, worker.generation, reference.future(), purpose=purpose)
        )

    def _load(self, worker: Worker, problem: str) -> bool:
        """Sends a problem to a worker that does not have it; returns whether it was new."""
        if problem in worker.loaded:
            return False
        worker.handle.load.remote(self._problems[problem])
        worker.loaded.add(problem)
        return True

    def _await(self, call: CallReturned) -> None:
        call.future.add_done_callback(lambda done: self._events.put(call))
