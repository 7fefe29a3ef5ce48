"""Runners of GPUs: Ray actors that own a device and measure one candidate at a time.

The actor stays on the lane's cores of the host; candidates run in the processes of
`tuner.measure.gpu.runner`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from tuner.errors import TunerError, UsageError
from tuner.measure.assignment import Lane, Request
from tuner.measure.foreign.examination import Contestant
from tuner.measure.foreign.verdict import Verdict
from tuner.measure.gpu.examination import judge_cuda
from tuner.measure.gpu.runner import FreshProcesses, GpuRunner, gpu_lane
from tuner.measure.outcome import Failed, FailureKind, Outcome
from tuner.workers.fleet.lane_runner import LaneRunner
from tuner.workers.fleet.messages import ExaminationOutcome, Limits, Problem, RunExamination
from tuner.workers.fleet.runner import examined


class GpuLaneRunner(LaneRunner):
    """The actor of a GPU's lane. Ray runs its methods one after the other."""

    def __init__(
        self, *, lane: Lane, home_cores: tuple[int, ...], limits: Limits, storage: str
    ) -> None:
        """`storage`: directory for libraries that come from other machines."""
        os.sched_setaffinity(0, lane.cores or home_cores)
        super().__init__(lane=lane, limits=limits, storage=storage)
        self._runner = GpuRunner(gpu_lane(lane))

    def describe(self) -> dict[str, int | str]:
        """Name and process ids, or `refused`: why the device cannot be used."""
        description: dict[str, int | str] = {"name": self._lane.name, "pid": os.getpid()}
        try:
            self._runner.start()
        except TunerError as error:
            return description | {"refused": str(error)}
        return description | {
            "process_pid": self._runner.pid or 0,
            "isolation": "process",
            "device": str(self._runner.facts["name"]),
        }

    def calibrate(self) -> tuple[float, ...]:
        """An empty calibration: a device reports its clock with each trial instead."""
        return ()

    def prepare(self, problem: Problem) -> None:
        self._runner.prepare(problem.workload, problem.seed)

    def outcome(self, request: Request) -> Outcome:
        try:
            return self._runner.measure(request)
        except TunerError as error:
            self._prepared = ""
            return Failed(kind=FailureKind.INFRASTRUCTURE, message=str(error))

    def contender(self) -> FreshProcesses:
        return FreshProcesses(self._runner)

    def examine(self, problem_key: str, asks: Sequence[RunExamination]) -> list[ExaminationOutcome]:
        """Judges strangers' kernels, in processes of a runner of their own."""
        problem = self._problems[problem_key]

        def judged(ask: RunExamination, rival: Contestant) -> Verdict:
            if ask.launch is None:
                raise UsageError(f"lane {self._lane.name} is a GPU, and the foreign kernel is C")
            with GpuRunner(gpu_lane(self._lane)) as runner:
                return judge_cuda(
                    problem.workload,
                    ask.source,
                    ask.symbol,
                    problem.target,
                    ask.launch,
                    runner,
                    rival=rival,
                    timeout_s=self._limits.run_timeout_s,
                )

        return [examined(ask, self._storage, partial(judged, ask)) for ask in asks]

    def close(self) -> None:
        self._runner.close()
