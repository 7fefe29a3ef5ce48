"""The orchestrator: claims a job by lease, tunes its workloads one after the other, promotes a kernel for each, finishes the job.

The same code serves one job in the caller's process (`run_job`) and a queue of them (`Orchestrator.serve`). All state is in the
database: a job whose orchestrator was killed is claimed again and goes on after its last recorded trial.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from pathlib import Path

from db import jobs, kernels, leases, targets, trials, workloads
from db.engine import Database, Session
from db.errors import StaleLease
from db.jobs import Job, Task
from db.leases import Lease
from tuner.errors import DatabaseError, TunerError, UsageError
from tuner.export.artifacts import ArtifactStore
from tuner.export.signature import signer_at
from tuner.spaces.cpu import CpuSpace
from tuner.spaces.space import Config
from tuner.target.target import Limits as MachineLimits
from tuner.target.target import Target
from tuner.tuning import StopReason, TuningResult
from tuner.workload.spec import from_document
from tuner.workload.workload import Workload
from workers import machine
from workers.affinity import confined
from workers.fleet import Fleet
from workers.heartbeat import Heartbeat
from workers.known import unanswered
from workers.messages import FleetPlan, Limits, Problem
from workers.plausibility import Judge
from workers.pool import RayMeasurer
from workers.progress import Observer, Phase, TaskFinished, TaskStarted, unobserved
from workers.promotion import NothingVerified, Promotion, promote
from workers.task import TaskRun, known_outcomes, notice_to, search
from workers.timeline import Timeline, join, versions

IDLE_S = 0.5  # between two looks at an empty queue
LEASE_S = 30.0
WINNERS = 8  # configs of earlier kernels that a search tries first


class Interruption(Enum):
    """Why a caller wants the running job to stop."""

    CANCEL = "cancel"  # the job ends as cancelled; it can be resumed
    RELEASE = "release"  # the job goes back to the queue, for the next orchestrator


Interrupt = Callable[[], Interruption | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorOptions:
    artifacts: Path  # folder of the artifact store
    signing_key: Path | None = None  # file of the key that signs artifacts, made when it is missing; None: nothing is signed
    lanes: str = ""  # declared lane plan; empty: detected
    builders: int = 0  # most builders; 0: what the cores allow
    address: str | None = None  # of a Ray cluster; None: a local one is started
    limits: Limits = field(default_factory=Limits)
    lease_s: float = LEASE_S
    owner: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}")  # who holds the leases


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """What became of a job in this run."""

    job: Job
    unverified: bool = False  # not even the default schedule of some workload could be verified (exit code 5)


class FleetKeeper:
    """The fleet, kept from job to job as long as the lanes stay the same."""

    def __init__(self, options: OrchestratorOptions) -> None:
        self._options = options
        self._fleet: Fleet | None = None
        self._plan: FleetPlan | None = None
        self._ready = False

    def start(self, threads: int, target: str) -> Fleet:
        """A fleet with lanes for kernels of so many threads for a target; it may still be starting."""
        plan = self._wanted(threads, target)
        if self._fleet is not None and plan == self._plan:
            return self._fleet
        self.close()
        fleet = Fleet(plan)
        fleet.start()
        self._fleet, self._plan, self._ready = fleet, plan, False
        return fleet

    def _wanted(self, threads: int, target: str) -> FleetPlan:
        """On this machine its own lanes; in a cluster those of its hosts, while this machine's builder cores search."""
        options = self._options
        in_cluster = options.address is not None
        here = machine.plan_machine(
            machine.usable_nodes(), threads=1 if in_cluster else threads, declared=options.lanes, builders=options.builders
        )
        return FleetPlan(
            lanes=here.lanes,
            builder_cores=here.builder_cores,
            alternates=here.alternates,
            limits=options.limits,
            storage="",
            address=options.address,
            threads=threads if in_cluster else 1,
            target=target if in_cluster else "",
            versions=versions() if in_cluster else {},
        )

    def wait_ready(self, check: Callable[[], None]) -> Fleet:
        """The started fleet, once builders and runners answer. Raises FleetError."""
        fleet = self._fleet
        assert fleet is not None, "start comes first"
        if not self._ready:
            fleet.wait_ready(check=check)
            self._ready = True
        return fleet

    def close(self) -> None:
        if self._fleet is not None:
            self._fleet.close()
        self._fleet = self._plan = None


class _Interrupted(Exception):
    """The job is to stop before its search has begun."""


class _JobRun:
    """One claimed job."""

    def __init__(
        self,
        database: Database,
        job: Job,
        lease: Lease,
        keeper: FleetKeeper,
        options: OrchestratorOptions,
        observer: Observer,
        interrupt: Interrupt,
    ) -> None:
        self._database, self._job, self._lease = database, job, lease
        self._keeper, self._options, self._observer, self._interrupt = keeper, options, observer, interrupt
        self._heart = Heartbeat(database, lease, lifetime_s=options.lease_s)
        self._unverified = False

    def run(self) -> JobReport:
        try:
            with self._heart:
                job = self._work()
        except (StaleLease, DatabaseError):
            raise  # the job is somebody else's by now, or nothing can be written about it
        except TunerError as error:
            job = self._finish(jobs.FAILED, str(error))
        except KeyboardInterrupt:
            self._finish(jobs.CANCELLED)
            raise
        except Exception as error:  # a fault of ours: the job must not look as if somebody still worked on it
            self._finish(jobs.FAILED, f"internal error: {type(error).__name__}: {error}")
            raise
        return JobReport(job=job, unverified=self._unverified)

    def _work(self) -> Job:
        tasks = unanswered(self._database, self._lease, self._job)
        if tasks:
            self._keeper.start(self._job.threads, self._job.target)  # Ray starts while the space is made
        with self._database.read() as session:
            target = targets.get(session, self._job.target)
        errors = []
        for task in tasks:
            try:
                error = self._task(task, target)
            except _Interrupted:
                error = None
            if self._stopping():
                return self._stopped()
            if error is not None:
                errors.append(error)
        if errors:
            return self._finish(jobs.FAILED, "; ".join(errors))
        return self._finish(jobs.SUCCEEDED)

    def _task(self, task: Task, target: Target) -> str | None:
        """Tunes one workload and promotes its kernel; the reason where it failed."""
        with self._database.read() as session:
            workload = from_document(workloads.get(session, task.workload).document)
            recorded = trials.of_task(session, self._job.id, task.position)
            winners = self._winners(session, workload, target)
        problem = Problem(workload=workload, target=target, threads=self._job.threads, seed=self._job.seed)
        space = CpuSpace(workload, target, self._job.threads)
        with self._database.write("space") as session:
            leases.note_task(session, self._lease, task.position, space_size=space.space.size)
        started = TaskStarted(
            position=task.position,
            workload=workload,
            space_size=space.space.size,
            recorded=len(recorded),
            trials=self._job.trials,
            seconds=self._job.seconds,
        )
        self._observer(started)
        self._observer(Phase(name="starting workers"))
        fleet = self._keeper.wait_ready(self._check)
        timeline = Timeline(self._database, worker=join(self._database, target, fleet.plan), job=self._lease.job_id)
        judge = Judge(problem, core=fleet.plan.builder_cores[0], on_limits=self._note_limits)
        measurer = RayMeasurer(
            fleet,
            problem,
            known=known_outcomes(recorded),
            judge=judge.judged,
            on_spans=timeline.add,
            on_notice=notice_to(self._observer),
        )
        run = TaskRun(
            database=self._database,
            lease=self._lease,
            job=self._job,
            task=task,
            problem=problem,
            space=space,
            winners=winners,
            judge=judge,
            recorded=recorded,
            measurer=measurer,
            observer=self._observer,
            interrupted=self._stopping,
            check=self._heart.check,
        )
        try:
            with confined(fleet.plan.builder_cores):
                self._observer(Phase(name="searching"))
                result = search(run)
                if result.reason is StopReason.CANCELLED:
                    return None
                return self._promote(run, result)
        finally:
            measurer.close()
            timeline.flush()

    def _winners(self, session: Session, workload: Workload, target: Target) -> list[Config]:
        """Configs of promoted kernels worth trying first: this workload's own, then those of its operator, the newest first."""
        threads = self._job.threads
        own = kernels.find_promoted(session, workload.key, target.key, threads)
        near = kernels.neighbours(session, workload.op, target.key, threads, limit=WINNERS) if workload.op else ()
        return [kernel.config for kernel in ((own,) if own else ()) + near if kernel.config][:WINNERS]

    def _note_limits(self, limits: MachineLimits) -> None:
        with self._database.write("limits") as session:
            targets.set_limits(session, self._job.target, limits)

    def _promote(self, run: TaskRun, result: TuningResult) -> str | None:
        self._observer(Phase(name="promotion"))
        position = run.task.position
        error = kernel = None
        started = time.monotonic()
        try:
            kernel = promote(
                Promotion(
                    run=run,
                    best=result.best,
                    artifacts=ArtifactStore(self._options.artifacts),
                    check=self._check,
                    signer=None if self._options.signing_key is None else signer_at(self._options.signing_key),
                )
            )
        except NothingVerified as failure:
            self._unverified = True
            error = str(failure)
        with self._database.write("task") as session:
            before = jobs.get(session, self._job.id).tasks[position].elapsed_s
            elapsed = {**before, "total": before.get("total", 0.0) + time.monotonic() - started}
            state = "succeeded" if kernel else "failed"
            leases.note_task(session, self._lease, position, state=state, elapsed_s=elapsed, error=error)
        self._observer(TaskFinished(position=position, kernel=kernel, error=error))
        return error

    def _check(self) -> None:
        """Between the steps of what cannot be stopped halfway."""
        self._heart.check()
        if self._stopping():
            raise _Interrupted

    def _stopping(self) -> bool:
        return self._heart.cancelled or self._interrupt() is not None

    def _stopped(self) -> Job:
        if not self._heart.cancelled and self._interrupt() is Interruption.RELEASE:
            with self._database.write("release") as session:
                return leases.release(session, self._lease)
        return self._finish(jobs.CANCELLED)

    def _finish(self, state: str, error: str | None = None) -> Job:
        with self._database.write("finish") as session:
            if state == jobs.CANCELLED:
                jobs.request_cancel(session, self._job.id)
            return leases.finish(session, self._lease, state, error=error)


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

    `take_over` claims a job whose holder is known to be dead before its lease runs out. A job that fails does so in its report;
    raised are LeaseHeld, IllegalTransition, StaleLease (somebody took it over) and DatabaseError.
    """
    with database.write("claim") as session:
        job, lease = leases.claim(
            session, job_id, owner=options.owner, lifetime=timedelta(seconds=options.lease_s), take_over=take_over
        )
    keeper = FleetKeeper(options)
    try:
        return _JobRun(database, job, lease, keeper, options, observer, interrupt).run()
    finally:
        keeper.close()


class Orchestrator:
    """Serves the queue of one machine's target."""

    def __init__(self, database: Database, target: Target, options: OrchestratorOptions) -> None:
        if target.kind != "cpu":
            raise UsageError(f"target {target.name} is no CPU; its lanes cannot be planned here")
        self._database, self._target, self._options = database, target, options

    def serve(self, stop: threading.Event, *, on_error: Callable[[str], None] = lambda text: None) -> None:
        """Claims and runs jobs until `stop` is set; the job in progress then goes back to the queue."""
        keeper = FleetKeeper(self._options)
        try:
            while not stop.is_set():
                try:
                    served = self._serve_one(keeper, stop)
                except Exception as error:  # the service outlives a job: its row says why it failed, the next one is claimed
                    on_error(f"{type(error).__name__}: {error}")
                    keeper.close()
                    served = False
                if not served:
                    stop.wait(IDLE_S)
        finally:
            keeper.close()

    def _serve_one(self, keeper: FleetKeeper, stop: threading.Event) -> bool:
        options = self._options
        with self._database.write("claim") as session:
            claimed = leases.claim_next(
                session, owner=options.owner, lifetime=timedelta(seconds=options.lease_s), targets=[self._target.key]
            )
        if claimed is None:
            return False
        job, lease = claimed

        def interrupt() -> Interruption | None:
            return Interruption.RELEASE if stop.is_set() else None

        report = _JobRun(self._database, job, lease, keeper, options, unobserved, interrupt).run()
        if report.job.state == jobs.FAILED:
            keeper.close()  # the fleet may be what failed
        return True
