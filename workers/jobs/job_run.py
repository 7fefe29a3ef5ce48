"""Runs one claimed job on its share of the fleet, from its claim to its last state."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tuner.db import jobs, leases, targets
from tuner.db.engine import Database
from tuner.db.errors import StaleLease
from tuner.db.jobs import Job, Task
from tuner.db.leases import Lease
from tuner.errors import DatabaseError, TunerError
from tuner.export.artifacts import ArtifactStore
from tuner.workers.fleet.policy import JobShare
from tuner.workers.jobs.admission import trials_left
from tuner.workers.jobs.equal_jobs import take_results
from tuner.workers.jobs.fleet_cache import FleetCache
from tuner.workers.jobs.heartbeat import Heartbeat
from tuner.workers.jobs.judging import judge_task
from tuner.workers.jobs.kernel_cache import unanswered
from tuner.workers.jobs.model_executor import model_executor
from tuner.workers.jobs.model_jobs import ModelCalls, with_library, with_workloads
from tuner.workers.jobs.model_kernels import tune_kernels
from tuner.workers.jobs.options import (
    Interrupt,
    Interrupted,
    Interruption,
    JobReport,
    OrchestratorOptions,
)
from tuner.workers.jobs.progress import Observer, TaskFinished
from tuner.workers.jobs.reracing import rerace_task
from tuner.workers.jobs.task import rest_of
from tuner.workers.jobs.task_preparation import TaskPreparation
from tuner.workers.jobs.task_tuning import TaskTuning

SWITCHED_OFF = (
    "this service compiles nobody's sources any more; resume the job once its operator has set "
    "candidates to on"
)


class JobRun:
    """Runs one claimed job to its end, or until it is to stop."""

    def __init__(
        self,
        database: Database,
        job: Job,
        lease: Lease,
        fleet_cache: FleetCache,
        options: OrchestratorOptions,
        observer: Observer,
        interrupt: Interrupt,
        *,
        order: int = 0,
    ) -> None:
        """`order` is that of the claim among those of this orchestrator."""
        self._database = database
        self._job = job
        self._lease = lease
        self._fleet_cache = fleet_cache
        self._options = options
        self._observer = observer
        self._interrupt = interrupt
        self._job_share = JobShare(
            job=job.id,
            owner=job.owner or "",
            priority=job.priority,
            order=order,
            threads=job.threads,
            trials_left=trials_left(job),
            cache=job.cache,
        )
        self._heart = Heartbeat(database, lease, lifetime_s=options.lease_s)
        self._tuning: TaskTuning | None = None  # once the tasks are worked on

    def run(self) -> JobReport:
        try:
            with self._heart:
                job = self._work()
        except (StaleLease, DatabaseError):
            raise  # another orchestrator has the job, or nothing can be written about it
        except TunerError as error:
            job = self._finish(jobs.FAILED, str(error))
        except KeyboardInterrupt:
            self._finish(jobs.CANCELLED)
            raise
        # An internal error: the job must not look as if it were still being worked on.
        except Exception as error:
            self._finish(jobs.FAILED, f"internal error: {type(error).__name__}: {error}")
            raise
        return JobReport(job=job, unverified=self._tuning is not None and self._tuning.unverified)

    def _work(self) -> Job:
        if self._job.kind == jobs.JUDGE and not self._options.judges:
            # It was queued before the operator switched that off.
            return self._finish(jobs.FAILED, SWITCHED_OFF)
        calls: ModelCalls | None = None
        begun_s = time.monotonic()
        if self._job.kind == jobs.MODEL:
            store = ArtifactStore(self._options.artifacts)
            self._job, calls = with_workloads(self._database, self._lease, self._job, store)
            if take_results(self._database, self._lease, self._job):
                return self._succeed()
        tasks = unanswered(self._database, self._lease, self._job)
        if not tasks:
            return self._succeed()
        # Ray starts while the space is made.
        fleet = self._fleet_cache.start(self._job.threads, self._job.target)
        with self._database.read() as session:
            target = targets.get(session, self._job.target)
        with (
            fleet.joined(self._job_share) as channel,
            ThreadPoolExecutor(1, thread_name_prefix="ahead") as background,
        ):
            preparation = TaskPreparation(
                database=self._database,
                job=self._job,
                lease=self._lease,
                target=target,
                fleet=fleet,
                channel=channel,
                observer=self._observer,
                check_lease=self._heart.check,
                check=self._check,
                stopping=self._stopping,
                background=background,
            )
            tuning = self._tuning = TaskTuning(
                preparation=preparation,
                options=self._options,
                dispensable=frozenset() if calls is None else frozenset(calls.chains),
            )
            if calls is not None:
                errors = tune_kernels(tuning, tasks, calls, begun_s=begun_s)
            elif self._job.kind == jobs.JUDGE:
                errors = self._each(tasks, partial(self._judge, preparation))
            elif self._job.kind == jobs.RERACE:
                errors = self._each(tasks, partial(self._rerace, preparation))
            else:
                errors = self._each(tasks, lambda task: tuning.tune(task, rest_of(self._job, task)))
        if self._stopping():
            return self._stopped()
        if errors:
            return self._finish(jobs.FAILED, "; ".join(errors))
        return self._succeed()

    def _succeed(self) -> Job:
        """Ends the job as succeeded; a model's job first gets the library of all its kernels,
        unless it is to stop before."""
        if self._job.kind == jobs.MODEL:
            store = ArtifactStore(self._options.artifacts)
            try:
                with_library(
                    self._database,
                    self._lease,
                    self._job,
                    store,
                    partial(model_executor, self._options, threads=self._job.threads),
                    self._options.signing_key,
                    self._check,
                )
            except Interrupted:
                return self._stopped()
        return self._finish(jobs.SUCCEEDED)

    def _each(self, tasks: Sequence[Task], work: Callable[[Task], str | None]) -> list[str]:
        """Does the tasks one after the other; returns the reasons of those that failed."""
        errors = []
        for task in tasks:
            if self._stopping():
                break
            try:
                error = work(task)
            except Interrupted:
                error = None
            if self._stopping():
                break
            if error is not None:
                errors.append(error)
        return errors

    def _judge(self, preparation: TaskPreparation, task: Task) -> str | None:
        """Judges the foreign kernel of a job; the reason if the machine failed."""
        with preparation.prepared(task, self._job) as run:
            error = judge_task(run, ArtifactStore(self._options.artifacts), self._check)
        self._observer(TaskFinished(position=task.position, kernel=None, error=error))
        return error

    def _rerace(self, preparation: TaskPreparation, task: Task) -> str | None:
        """Races the promoted kernel of a workload again; the reason if that failed."""
        store, races = ArtifactStore(self._options.artifacts), self._options.canary_races
        with preparation.prepared(task, self._job) as run:
            kernel, error = rerace_task(run, store, self._check, canary_races=races)
        self._observer(TaskFinished(position=task.position, kernel=kernel, error=error))
        return error

    def _check(self) -> None:
        """Raises once the job is to stop; called between steps that cannot be interrupted."""
        self._heart.check()
        if self._stopping():
            raise Interrupted

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
