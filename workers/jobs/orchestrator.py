"""The orchestrator: claims jobs by lease and runs them in threads, on a shared fleet.

The same code serves one job in the caller's process (`run_job`) and a queue of them
(`Orchestrator.serve`). All state is in the database: a job whose orchestrator was killed
is claimed again and continues after its last recorded trial.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from datetime import timedelta

from tuner.db import jobs, leases, runners
from tuner.db.engine import Database
from tuner.db.errors import (
    DatabaseBusy,
    DatabaseFull,
    DatabaseUnreachable,
    IllegalTransition,
    LeaseHeld,
)
from tuner.db.jobs import Job
from tuner.db.leases import Lease
from tuner.errors import UsageError
from tuner.export.artifacts import ArtifactStore
from tuner.target.target import Target
from tuner.workers.fleet import machine
from tuner.workers.jobs.admission import Quotas, admitted
from tuner.workers.jobs.cluster_hosts import ClusterHosts
from tuner.workers.jobs.fleet_cache import FleetCache
from tuner.workers.jobs.job_run import JobRun
from tuner.workers.jobs.options import Interrupt, Interruption, JobReport, OrchestratorOptions
from tuner.workers.jobs.presence import Presence
from tuner.workers.jobs.progress import Observer, unobserved

__all__ = [
    "Interrupt",
    "Interruption",
    "JobReport",
    "Orchestrator",
    "OrchestratorOptions",
    "run_job",
]

IDLE_S = 0.5  # between two looks at an empty queue
AWAY_S = 1.0  # between two tries to reach an unavailable database at the start


def run_job(
    database: Database,
    job_id: str,
    options: OrchestratorOptions,
    *,
    observer: Observer = unobserved,
    interrupt: Interrupt = lambda: None,
    take_over: bool = False,
) -> JobReport:
    """Tunes one queued job in this process, to its end or until `interrupt` says to stop.

    `take_over` claims a job whose holder is known to be dead before its lease runs out.
    A failure of the job is part of its report. Raises LeaseHeld, IllegalTransition,
    StaleLease (another orchestrator took it over) and DatabaseError.
    """
    with database.write("claim") as session:
        job, lease = leases.claim(
            session,
            job_id,
            owner=options.owner,
            lifetime=timedelta(seconds=options.lease_s),
            take_over=take_over,
        )
    ArtifactStore(options.artifacts).remove_partials()
    fleet_cache = FleetCache(options, on_hosts=ClusterHosts(database).seen)
    try:
        return JobRun(database, job, lease, fleet_cache, options, observer, interrupt).run()
    finally:
        fleet_cache.close()


class Orchestrator:
    """Serves the queue of one machine's target."""

    def __init__(self, database: Database, target: Target, options: OrchestratorOptions) -> None:
        if target.on_device and not options.gpus and options.address is None:
            raise UsageError(
                f"target {target.name} needs GPUs as lanes: of this machine, or of a cluster; "
                f"none was named"
            )
        self._database = database
        self._target = target
        self._options = options

    def serve(
        self, stop: threading.Event, *, on_error: Callable[[str], None] = lambda text: None
    ) -> None:
        """Claims and runs jobs until `stop` is set; running jobs are then queued again.

        Waits for an unavailable database, and calls `on_error` once. Raises DatabaseError
        if waiting cannot help.
        """
        options = self._options
        ArtifactStore(options.artifacts).remove_partials()
        fleet_cache = FleetCache(options, on_hosts=ClusterHosts(self._database).seen)
        nodes = machine.usable_nodes()
        if options.devices:
            here = machine.plan_devices(nodes, options.devices, builders=options.builders)
        elif options.gpus:
            here = machine.plan_gpus(nodes, options.gpus, builders=options.builders)
        else:
            here = machine.plan_machine(
                nodes, threads=1, declared=options.lanes, builders=options.builders
            )
        presence = Presence(self._database, self._target, here.lanes)
        running = _Running(self._database, self._options, fleet_cache, stop, on_error)
        reported = ""
        try:
            self._join(presence, stop, on_error)
            while not stop.is_set():
                claimed, trouble = None, ""
                try:
                    claimed = self._claim_next(running.jobs, fleet_cache)
                # A failed claim or an unavailable database must not end the service.
                except Exception as error:
                    trouble = f"{type(error).__name__}: {error}"
                if trouble and trouble != reported:
                    on_error(trouble)
                reported = trouble
                if claimed is not None:
                    running.start(*claimed)
                else:
                    running.wait(IDLE_S)
        finally:
            presence.leave()
            running.join()
            fleet_cache.close()

    def _join(
        self, presence: Presence, stop: threading.Event, on_error: Callable[[str], None]
    ) -> None:
        """Records this machine as a worker, as soon as the database is available."""
        reported = ""
        while not stop.is_set():
            try:
                presence.join()
                return
            except (DatabaseBusy, DatabaseFull, DatabaseUnreachable) as error:
                text = f"the orchestrator waits for the database: {error}"
            if text != reported:
                on_error(text)
            reported = text
            stop.wait(AWAY_S)

    def _claim_next(
        self, running: tuple[Job, ...], fleet_cache: FleetCache
    ) -> tuple[Job, Lease] | None:
        options = self._options
        quotas = Quotas(running_jobs=options.running_jobs, running_per_key=options.running_per_key)
        if len(running) >= quotas.running_jobs:
            return None
        with self._database.write("claim") as session:
            leases.settle_abandoned(session)
            waiting = leases.waiting(session, targets=runners.served_keys(session, self._target))
            job = admitted(
                waiting, running, quotas, policy=options.policy, same_fleet=fleet_cache.shared_by
            )
            if job is None:
                return None
            try:
                return leases.claim(
                    session,
                    job.id,
                    owner=options.owner,
                    lifetime=timedelta(seconds=options.lease_s),
                )
            except (LeaseHeld, IllegalTransition):
                return None  # another orchestrator or a cancellation was faster


class _Running:
    """The jobs in progress, a thread for each."""

    def __init__(
        self,
        database: Database,
        options: OrchestratorOptions,
        fleet_cache: FleetCache,
        stop: threading.Event,
        on_error: Callable[[str], None],
    ) -> None:
        self._database = database
        self._options = options
        self._fleet_cache = fleet_cache
        self._stop = stop
        self._on_error = on_error
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._ended = threading.Event()
        self._doubtful = False  # a job failed: the fleet may be what failed
        self._order = itertools.count()

    @property
    def jobs(self) -> tuple[Job, ...]:
        with self._lock:
            return tuple(self._jobs.values())

    def start(self, job: Job, lease: Lease) -> None:
        run = JobRun(
            self._database,
            job,
            lease,
            self._fleet_cache,
            self._options,
            unobserved,
            self._interruption,
            order=next(self._order),
        )
        thread = threading.Thread(target=self._run, args=(job, run), name=f"job {job.id}")
        with self._lock:
            self._jobs[job.id], self._threads[job.id] = job, thread
        thread.start()

    def wait(self, seconds: float) -> None:
        """Waits until a job has ended, at most for so long."""
        self._ended.wait(seconds)
        self._ended.clear()

    def join(self) -> None:
        """Waits until all jobs have ended."""
        with self._lock:
            threads = tuple(self._threads.values())
        for thread in threads:
            thread.join()

    def _interruption(self) -> Interruption | None:
        return Interruption.RELEASE if self._stop.is_set() else None

    def _run(self, job: Job, run: JobRun) -> None:
        failed = True
        try:
            failed = run.run().job.state == jobs.FAILED
        # A failed job must not end the service; the job's row holds the reason.
        except Exception as error:
            self._on_error(f"{type(error).__name__}: {error}")
        finally:
            self._end(job, failed)

    def _end(self, job: Job, failed: bool) -> None:
        with self._lock:
            del self._jobs[job.id], self._threads[job.id]
            self._doubtful |= failed
            if self._doubtful and not self._jobs:
                self._fleet_cache.close()
                self._doubtful = False
        self._ended.set()
