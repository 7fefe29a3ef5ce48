"""The actors of a fleet: its builders and runners as actors, where each runs, how long it
may take, how it is replaced."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import RayError

from tuner.measure.runner import RunnerOptions
from tuner.workers.fleet.builder import START_TIMEOUT_S, Builder
from tuner.workers.fleet.gpu_runner import GpuLaneRunner
from tuner.workers.fleet.host import PLACE, resource
from tuner.workers.fleet.messages import ControlRequest, FleetPlan, HostPlan, Limits, Problem
from tuner.workers.fleet.policy import Place
from tuner.workers.fleet.runner import Runner

FIRST_CALL_S = START_TIMEOUT_S + RunnerOptions().prepare_timeout_s
GRACE_S = 5.0  # on a busy machine
PREFETCH = "prefetch"  # the group of methods that Ray runs beside the others
DEVICE_START_S = 60.0  # of a GPU's process and context, mostly a second


class Worker:
    """An actor and how to make it again."""

    def __init__(
        self,
        name: str,
        actor: Any,
        arguments: dict[str, Any],
        batch_limit_s: float,
        host: str | None = None,
    ) -> None:
        """`host`: of a cluster, where the actor is to run. An actor that is given a
        lane measures, one without builds."""
        lane = arguments.get("lane")
        self.name, self.host, self._class, self._arguments, self._batch_limit_s = (
            name,
            host,
            actor,
            arguments,
            batch_limit_s,
        )
        self.builds = lane is None
        self.prepares = hasattr(
            actor, PREFETCH
        )  # whether it can be given a workload while it measures another
        self.preparing = False  # it does just now
        self.calibrating = False
        self.up = False  # it has answered: what it is given from now on may be why it is lost
        self.control: ControlRequest | None = None  # that it is answering
        self.control_since_s = 0.0  # when, seconds since the epoch
        self.generation = 0
        self.loaded: set[str] = set()
        self.deadlines: list[
            float
        ] = []  # of the calls in flight, oldest first, each counted from when it became the oldest
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
        """Of its lane, or those that its compiler builds on."""
        lane = self._arguments.get("lane")
        cores: tuple[int, ...] = self._arguments["cores"] if lane is None else lane.cores
        return cores

    @property
    def place(self) -> Place:
        """What its lane offers; a builder has none."""
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
        """Has it make ready a workload beside what it measures; the future ends when
        that is done, or cannot be."""
        self.preparing = True
        return self.handle.prefetch.options(concurrency_group=PREFETCH).remote(problem).future()

    def end(self) -> None:
        self.control = None
        with suppress(RayError):
            ray.kill(self.handle)

    def limit_s(self, items: int, *, first: bool) -> float:
        """How long a call may take; the first one of a problem waits for the compiler
        to load or for inputs to be made."""
        return (FIRST_CALL_S if first else GRACE_S) + items * self._batch_limit_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorFactory:
    """What the actors are made of."""

    builder: type = Builder
    runner: type = Runner
    gpu_runner: type = GpuLaneRunner

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
                if lane.gpu is None:
                    workers.append(Worker(name, self.runner, measuring, limit_s, host))
                else:  # a candidate that broke its device leaves a new process to be started
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
    """Lanes that are made ready for a problem before they are given its candidates."""
    return [worker.name for worker in workers if worker.prepares]
