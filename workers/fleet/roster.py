"""The workers of a fleet, by name and machine."""

from __future__ import annotations

import time
from collections.abc import Iterator

import ray
from ray.exceptions import RayActorError

from tuner.workers.fleet.actors import ActorFactory, Worker, borrowed_builders
from tuner.workers.fleet.messages import FleetPlan, HostPlan

START_ATTEMPTS = 3  # for a worker that dies before it has answered once


class Roster:
    """Workers by name, those of this machine first."""

    def __init__(self, plan: FleetPlan, actors: ActorFactory, *, local: bool) -> None:
        """`local`: whether this machine's cores are the fleet's, not a cluster's hosts."""
        self._plan = plan
        self._actors = actors
        workers = actors.make(plan, plan.limits) if local else []
        self._workers = {worker.name: worker for worker in workers}
        self.borrowers = borrowed_builders(plan, workers)

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers.values())

    def __len__(self) -> int:
        return len(self._workers)

    def __getitem__(self, name: str) -> Worker:
        return self._workers[name]

    def get(self, name: str) -> Worker | None:
        return self._workers.get(name)

    @property
    def builders(self) -> list[str]:
        return [worker.name for worker in self if worker.builds]

    @property
    def runners(self) -> list[str]:
        return [worker.name for worker in self if not worker.builds]

    @property
    def idle(self) -> bool:
        """Whether there are workers and none of them has anything to do."""
        busy = any(worker.deadlines or worker.preparing for worker in self)
        return bool(self.builders and self.runners) and not busy

    def on_host(self, name: str) -> list[Worker]:
        return [worker for worker in self if worker.host == name]

    def join(self, host: HostPlan) -> list[Worker]:
        """Adds the workers of a host that joined, of lanes with enough cores."""
        workers = self._actors.make(
            host, self._plan.limits, host=host.name, threads=self._plan.threads
        )
        self._workers |= {worker.name: worker for worker in workers}
        return workers

    def leave(self, worker: Worker) -> None:
        """Ends a worker for good."""
        del self._workers[worker.name]
        worker.end()

    def describe(self, deadline: float) -> tuple[dict[str, int | str], ...]:
        """The description of each worker, by `deadline` on the monotonic clock.

        A worker that dies before its answer is replaced, a few times.
        """
        descriptions: dict[str, dict[str, int | str]] = {}
        for attempts_left in reversed(range(START_ATTEMPTS)):
            references = {
                worker.name: worker.handle.describe.remote()
                for worker in self
                if worker.name not in descriptions
            }
            for name, reference in references.items():
                try:
                    left_s = max(1.0, deadline - time.monotonic())
                    descriptions[name] = ray.get(reference, timeout=left_s)
                except RayActorError:
                    if not attempts_left:
                        raise
                    self._workers[name].replace()
        return tuple(descriptions.values())
