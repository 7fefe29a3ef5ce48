"""The orchestrator: claims jobs by lease and runs several of them at once, each in a
thread, on one fleet that they share.

The same code serves one job in the caller's process (`run_job`) and a queue of them
(`Orchestrator.serve`). All state is in the database: a job whose orchestrator was
killed is claimed again and goes on after its last recorded trial.
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
AWAY_S = 1.0  # between two tries to reach a database that is away when the service starts


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
    A job that fails does so in its report; raised are LeaseHeld, IllegalTransition,
    StaleLease (somebody took it over) and DatabaseError.
    """
    with database.write("claim") as session:
        job, lease = leases.claim(
            session,
            job_id,
            owner=options.owner,
            lifetime=timedelta(seconds=options.lease_s),
            take_over=take_over,
        )
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
        self._database, self._target, self._options = database, target, options

    def serve(
        self, stop: threading.Event, *, on_error: Callable[[str], None] = lambda text: None
    ) -> None:
        """Claims and runs jobs until `stop` is set; those in progress then go back to the queue.

        A database that is away, from the beginning or later, is waited for; `on_error`
        is told once. Raises the DatabaseError of one that cannot be joined however long
        one waits.
        """
        fleet_cache, options = (
            FleetCache(self._options, on_hosts=ClusterHosts(self._database).seen),
            self._options,
        )
        nodes = machine.usable_nodes()
        if options.gpus:
            here = machine.plan_gpus(nodes, options.gpus, builders=options.builders)
        else:
            here = machine.plan_machine(
                nodes, threads=1, declared=options.lanes, builders=options.builders
            )
        presence = Presence(self._database, self._target, here.lanes)
        running = _Running(self._database, self._options, fleet_cache, stop, on_error)
        said = ""
        try:
            self._join(presence, stop, on_error)
            while not stop.is_set():
                claimed, trouble = None, ""
                try:
                    claimed = self._claim_next(running.jobs, fleet_cache)
                # the service outlives what goes wrong with one claim, or a database
                # that is away
                except Exception as error:
                    trouble = f"{type(error).__name__}: {error}"
                if trouble and trouble != said:
                    on_error(trouble)
                said = trouble
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
        """Makes this machine known, as soon as the database lets it."""
        said = ""
        while not stop.is_set():
            try:
                presence.join()
                return
            except (DatabaseBusy, DatabaseFull, DatabaseUnreachable) as error:
                text = f"the orchestrator waits for the database: {error}"
            if text != said:
                on_error(text)
            said = text
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
        self._database, self._options, self._fleet_cache, self._stop, self._on_error = (
            database,
            options,
            fleet_cache,
            stop,
            on_error,
        )
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
        """Until a job has ended, for so long at most."""
        self._ended.wait(seconds)
        self._ended.clear()

    def join(self) -> None:
        """Until all have ended."""
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
        except (
            Exception
        ) as error:  # the service outlives a job: its row says why it failed, the others go on
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
