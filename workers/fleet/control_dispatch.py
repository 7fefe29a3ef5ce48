"""Carries out control requests on the workers of a fleet: builds of finalists, races and
examinations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from tuner.workers.fleet.actors import Worker
from tuner.workers.fleet.calls import WorkerCalls
from tuner.workers.fleet.control_requests import ControlRequests
from tuner.workers.fleet.lane_calibration import LaneCalibration
from tuner.workers.fleet.messages import (
    BuildFinalists,
    BuildRequest,
    ControlReply,
    ControlRequest,
    ControlValue,
    RunExamination,
    RunRace,
    Span,
)
from tuner.workers.fleet.pipeline import Pipeline
from tuner.workers.fleet.roster import Roster


class ControlDispatch:
    """The control requests of a fleet and the workers that answer them."""

    def __init__(
        self,
        send: Callable[[ControlReply], None],
        *,
        roster: Roster,
        pipeline: Pipeline,
        calls: WorkerCalls,
        calibration: LaneCalibration,
    ) -> None:
        self._requests = ControlRequests(send)
        self._roster = roster
        self._pipeline = pipeline
        self._calls = calls
        self._calibration = calibration
        self._shared_number = 0  # of the request whose builds all builders share

    def add(self, control: ControlRequest) -> None:
        self._requests.add(control)

    @property
    def exclusive(self) -> bool:
        """Whether the first request needs an idle fleet.

        All but builds do, and builds on the cores that measure.
        """
        control = self._requests.first
        return control is not None and (
            self._pipeline.alternates or not isinstance(control.what, BuildFinalists)
        )

    @property
    def builds(self) -> bool:
        """Whether the first request is one for builds."""
        control = self._requests.first
        return control is not None and isinstance(control.what, BuildFinalists)

    @property
    def _at_rest(self) -> bool:
        """Whether there are workers and all are idle."""
        return self._roster.idle and not self._pipeline.busy

    @property
    def _racing_lane(self) -> Worker:
        """The lane for races: one in its calibration band, if there is one."""
        return self._roster[min(self._roster.runners, key=self._calibration.drained)]

    def dispatch(self) -> None:
        """Starts what the first request needs, as far as workers are free for it."""
        control = self._requests.first
        if control is None or (self.exclusive and not self._at_rest):
            return
        match control.what:
            case BuildFinalists():
                self._build_contestants(control)
            case RunRace() | RunExamination() if not any(worker.control for worker in self._roster):
                self._calls.work(
                    self._racing_lane,
                    "race" if isinstance(control.what, RunRace) else "examine",
                    control.problem.key,
                    [control.what],
                    control=control,
                    limit_s=control.what.limit_s,
                )

    def _build_contestants(self, control: ControlRequest) -> None:
        """Gives builds of a request to builders.

        All builders share them if the fleet was at rest when they began, otherwise they go
        to the builder that is kept free. What one of them has built lately goes to that one,
        which need not compile it again.
        """
        problem = control.problem.key
        if self._at_rest and self._shared_number != control.number:
            self._shared_number = control.number
            if self._racing_lane.prepares:
                # While the contestants are built, the lane prepares what it verifies by.
                self._calls.foresee_race(self._racing_lane, problem)
        shared = self._shared_number == control.number
        for name in self._roster.builders if shared else [self._pipeline.reserved]:
            if not name or self._roster[name].deadlines:
                continue
            if shared:
                request = self._requests.next_build(partial(self._suits, control, name))
            else:
                request = self._requests.next_build()
            if request is not None:
                self._calls.work(
                    self._roster[name],
                    "build",
                    problem,
                    [request],
                    control=control,
                    items=request.patience,
                )

    def _suits(self, control: ControlRequest, builder: str, request: BuildRequest) -> bool:
        """Whether a free builder is to have a build.

        Not if another has built it lately, unless that is busy with something else.
        """
        home = self._pipeline.builder_of(control.problem.key, request.config)
        worker = None if home in ("", builder) else self._roster.get(home)
        return worker is None or (bool(worker.deadlines) and worker.control is not control)

    def returned(
        self, control: ControlRequest, worker: Worker, results: Sequence[ControlValue]
    ) -> None:
        """Takes the results of a worker, which has no control request any more."""
        last = not any(other.control is control for other in self._roster)
        spans: tuple[Span, ...] = ()
        if not worker.builds:
            since_s = worker.control_since_s
            spans = (self._pipeline.raced(worker.name, since_s, time.monotonic()),)
        self._requests.part(control, results, last=last, spans=spans)

    def refuse(self, control: ControlRequest, reason: str) -> None:
        """Replies with an error, after the request lost a worker."""
        self._requests.refuse(control, reason)
