"""Builders and runners as Ray actors: where each runs, its time limits, its replacement."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import RayError

from tuner.measure.core_turns import PATIENCE_S as TURN_S
from tuner.measure.device.connection import START_S
from tuner.measure.device.runner import PATIENCE_S
from tuner.measure.runner import RunnerOptions
from tuner.workers.fleet.builder import START_TIMEOUT_S, Builder
from tuner.workers.fleet.device_runner import DeviceLaneRunner
from tuner.workers.fleet.gpu_runner import GpuLaneRunner
from tuner.workers.fleet.host import PLACE, resource
from tuner.workers.fleet.messages import ControlRequest, FleetPlan, HostPlan, Limits, Problem
from tuner.workers.fleet.policy import Place
from tuner.workers.fleet.runner import Runner

FIRST_CALL_S = START_TIMEOUT_S + RunnerOptions().prepare_timeout_s
GRACE_S = 5.0 + TURN_S  # on a busy machine, whose cores other runs may have
PREFETCH = "prefetch"  # concurrency group: its methods run beside the others
DEVICE_START_S = 60.0  # limit for a GPU's process and context, which mostly take a second


class Worker:
    """An actor, its state as the driver knows it, and how to create it again."""

    def __init__(
        self,
        name: str,
        actor: Any,
        arguments: dict[str, Any],
        batch_limit_s: float,
        host: str | None = None,
    ) -> None:
        """`host` is the host of a cluster on which the actor is to run.

        An actor with a lane in its arguments measures, one without builds.
        """
        lane = arguments.get("lane")
        self.name = name
        self.host = host
        self._class = actor
        self._arguments = arguments
        self._batch_limit_s = batch_limit_s
        self.builds = lane is None
        self.prepares = hasattr(actor, PREFETCH)  # can prepare a workload while it measures
        self.preparing = False  # prepares one now
        self.calibrating = False
        self.up = False  # has answered: from now on, its work may be why it is lost
        self.control: ControlRequest | None = None  # the one that it is answering
        self.control_since_s = 0.0  # since when it has it, on the driver's steady clock
        self.generation = 0
        self.loaded: set[str] = set()
        # Of the calls in flight, oldest first, each counted from when it became the oldest.
        self.deadlines: list[float] = []
        self.handle = self._make()

    def _make(self) -> Any:
        place = {} if self.host is None else {resource(self.host): PLACE}
        groups = {PREFETCH: 1} if self.prepares else None
        actor = ray.remote(
            num_cpus=0,
            resources=place,
            max_restarts=0,
            max_task_retries=0,
            concurrency_groups=groups,
        )
        return actor(self._class).remote(**self._arguments)

    @property
    def cores(self) -> tuple[int, ...]:
        """The cores of its lane, or those that its compiler builds on."""
        lane = self._arguments.get("lane")
        cores: tuple[int, ...] = self._arguments["cores"] if lane is None else lane.cores
        return cores

    @property
    def place(self) -> Place:
        """What its lane offers; a default place for a builder."""
        lane = self._arguments.get("lane")
        return Place() if lane is None else Place(threads=len(lane.cores))

    def replace(self) -> None:
        self.end()
        self.generation += 1
        self.loaded.clear()
        self.deadlines.clear()
        self.preparing = self.calibrating = self.up = False
        self.handle = self._make()

    def prepare(self, problem: Problem) -> Any:
        """Prepares a workload beside what it measures.

        The returned future ends when that is done or has failed.
        """
        self.preparing = True
        return self.handle.prefetch.options(concurrency_group=PREFETCH).remote(problem).future()

    def end(self) -> None:
        self.control = None
        with suppress(RayError):
            ray.kill(self.handle)

    def limit_s(self, items: float, *, first: bool) -> float:
        """The time limit of a call with so many items, in seconds.

        An item that may take several times its limit counts so often.
        The first call of a problem also waits for the compiler, or for inputs to be made.
        """
        return (FIRST_CALL_S if first else GRACE_S) + items * self._batch_limit_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorFactory:
    """Creates the actors of a fleet from their classes."""

    builder: type = Builder
    runner: type = Runner
    gpu_runner: type = GpuLaneRunner
    device_runner: type = DeviceLaneRunner

    def make(
        self,
        plan: FleetPlan | HostPlan,
        limits: Limits,
        *,
        host: str | None = None,
        threads: int = 1,
    ) -> list[Worker]:
        """The builders and lanes of this machine, or of a host of the cluster."""
        prefix = "" if host is None else f"{host}/"
        workers = []
        borrowers = plan.lent_cores if isinstance(plan, FleetPlan) else ()
        for core in (*plan.builder_cores, *borrowers):
            name = f"{prefix}build:{core}"
            building = {
                "name": name,
                "cores": (core,),
                "home_cores": plan.builder_cores,
                "limits": limits,
                "storage": plan.storage,
                "ships": host is not None,
            }
            workers.append(Worker(name, self.builder, building, limits.build_timeout_s + 5.0, host))
        for lane in plan.lanes:
            if len(lane.cores) >= threads:
                name = f"{prefix}{lane.name}"
                measuring = {
                    "lane": replace(lane, name=name),
                    "home_cores": plan.builder_cores,
                    "limits": limits,
                    "storage": plan.storage,
                }
                limit_s = limits.run_timeout_s + 5.0
                if lane.device is not None:  # which may be away for a while
                    limit_s += PATIENCE_S + START_S
                    workers.append(Worker(name, self.device_runner, measuring, limit_s, host))
                elif lane.gpu is None:
                    workers.append(Worker(name, self.runner, measuring, limit_s, host))
                else:  # after a candidate that broke its device, a new process must start
                    workers.append(
                        Worker(name, self.gpu_runner, measuring, limit_s + DEVICE_START_S, host)
                    )
        return workers


def borrowed_builders(plan: FleetPlan, workers: Sequence[Worker]) -> dict[str, str]:
    """Builders on cores that a lane lends, each with that lane."""
    lanes = {
        core: worker.name
        for worker in workers
        if not worker.builds
        for core in worker.cores
        if core in plan.lent_cores
    }
    return {
        worker.name: lanes[core]
        for worker in workers
        if worker.builds
        for core in worker.cores
        if core in lanes
    }


def preparing(workers: Sequence[Worker]) -> list[str]:
    """Lanes that must be prepared for a problem before they get its candidates."""
    return [worker.name for worker in workers if worker.prepares]
