"""Keeps the fleet from job to job, for as long as the lanes stay the same."""

from __future__ import annotations

import threading

from tuner.db.jobs import Job
from tuner.errors import UsageError
from tuner.workers.fleet import machine
from tuner.workers.fleet.handle import Fleet
from tuner.workers.fleet.job_share import OnHosts, SharedFleet
from tuner.workers.fleet.messages import FleetPlan
from tuner.workers.jobs.options import OrchestratorOptions
from tuner.workers.jobs.timeline import versions


class FleetCache:
    """Thread-safe. Jobs that run at once need the same lanes: `plan` tells."""

    def __init__(self, options: OrchestratorOptions, *, on_hosts: OnHosts) -> None:
        self._options, self._on_hosts = options, on_hosts
        self._nodes = (
            machine.usable_nodes()
        )  # now: while jobs run, this process is kept to the builders' cores
        self._lock = threading.Lock()
        self._fleet: SharedFleet | None = None
        self._plan: FleetPlan | None = None

    def start(self, threads: int, target: str) -> SharedFleet:
        """A fleet with lanes for kernels of so many threads for a target; it may still be starting.

        Raises UsageError where no lane is long enough.
        """
        plan = self.plan(threads, target)
        with self._lock:
            if self._fleet is not None and plan == self._plan and self._fleet.broken is None:
                return self._fleet
            self._close()
            fleet = SharedFleet(Fleet(plan), on_hosts=self._on_hosts)
            fleet.start()
            self._fleet, self._plan = fleet, plan
            return fleet

    def plan(self, threads: int, target: str) -> FleetPlan:
        """On this machine its own lanes; in a cluster those of its hosts, while this
        machine's builder cores search.

        Lanes that were declared stay as they are, so that kernels of different threads share them.
        """
        options = self._options
        in_cluster = options.address is not None
        needed = 1 if in_cluster or options.lanes else threads
        if options.gpus and not in_cluster:
            here = machine.plan_gpus(self._nodes, options.gpus, builders=options.builders)
        else:
            here = machine.plan_machine(
                self._nodes, threads=needed, declared=options.lanes, builders=options.builders
            )
        longest = max(len(lane.cores) for lane in here.lanes)
        if not in_cluster and longest < threads:
            raise UsageError(
                f"a kernel of {threads} threads needs a lane of {threads} cores; the plan's "
                f"longest has {longest}"
            )
        return FleetPlan(
            lanes=here.lanes,
            builder_cores=here.builder_cores,
            alternates=here.alternates,
            lent_cores=() if in_cluster else here.lent_cores,
            limits=options.limits,
            storage="",
            address=options.address,
            threads=threads if in_cluster else 1,
            target=target if in_cluster else "",
            versions=versions() if in_cluster else {},
            policy=options.policy,
            lane_share=options.lane_share,
        )

    def shared_by(self, job: Job, other: Job) -> bool:
        """Whether two jobs can run at once. One that no lane is long enough for is in
        nobody's way: it fails at its start."""
        try:
            return self.plan(job.threads, job.target) == self.plan(other.threads, other.target)
        except UsageError:
            return True

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._fleet is not None:
            self._fleet.close()
        self._fleet = self._plan = None
