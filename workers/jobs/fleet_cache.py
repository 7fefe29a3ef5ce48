"""Keeps a fleet from job to job, as long as the lanes stay the same."""

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
    """The fleet of an orchestrator. Thread-safe.

    Jobs that run at the same time must have the same `plan`.
    """

    def __init__(self, options: OrchestratorOptions, *, on_hosts: OnHosts) -> None:
        self._options = options
        self._on_hosts = on_hosts
        # Read now: while jobs run, this process is confined to the builders' cores.
        self._nodes = machine.usable_nodes()
        self._lock = threading.Lock()
        self._fleet: SharedFleet | None = None
        self._plan: FleetPlan | None = None

    def start(self, threads: int, target: str) -> SharedFleet:
        """A fleet with lanes for kernels of so many threads; it may still be starting.

        Raises UsageError if no lane has enough cores.
        """
        plan = self.plan(threads, target)
        with self._lock:
            if self._fleet is not None and plan == self._plan and self._fleet.broken is None:
                return self._fleet
            self._close()
            fleet = SharedFleet(Fleet(plan), on_hosts=self._on_hosts)
            fleet.start()
            self._fleet = fleet
            self._plan = plan
            return fleet

    def plan(self, threads: int, target: str) -> FleetPlan:
        """The lanes and builders of a fleet for kernels of so many threads.

        These are lanes of this machine, or in a cluster those of its hosts, while this
        machine's builder cores run the search. Declared lanes do not depend on `threads`,
        so that jobs with different numbers of threads can share them.
        """
        options = self._options
        in_cluster = options.address is not None
        needed = 1 if in_cluster or options.lanes else threads
        if options.devices and not in_cluster:
            here = machine.plan_devices(self._nodes, options.devices, builders=options.builders)
        elif options.gpus and not in_cluster:
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
        """Whether two jobs can run at the same time.

        True for a job that no lane has enough cores for: it fails at its start.
        """
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
