"""One claimed job: its workloads tuned one after the other on its share of the fleet, a
kernel promoted for each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tuner.db import events, jobs, kernels, leases, targets, trials, workloads
from tuner.db.engine import Database, Session
from tuner.db.errors import StaleLease
from tuner.db.jobs import Job, Task
from tuner.db.leases import Lease
from tuner.errors import DatabaseError, TunerError
from tuner.export.artifacts import ArtifactStore
from tuner.export.signature import signer_at
from tuner.models.task_scheduler import kind_of
from tuner.search.searcher import Searcher
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Config
from tuner.target.target import Limits as MachineLimits
from tuner.target.target import Target
from tuner.tuning import StopReason, TuningResult
from tuner.workers.fleet.job_share import JobChannel, SharedFleet
from tuner.workers.fleet.machine import plan_machine, usable_nodes
from tuner.workers.fleet.messages import Problem, Submit
from tuner.workers.fleet.policy import JobShare
from tuner.workers.fleet.ray_measurer import RayMeasurer
from tuner.workers.jobs.admission import trials_left
from tuner.workers.jobs.fleet_cache import FleetCache
from tuner.workers.jobs.heartbeat import Heartbeat
from tuner.workers.jobs.kernel_cache import unanswered
from tuner.workers.jobs.model_jobs import tune_by_turns, with_library, with_workloads
from tuner.workers.jobs.options import Interrupt, Interruption, JobReport, OrchestratorOptions
from tuner.workers.jobs.plausibility import Judge
from tuner.workers.jobs.progress import Observer, Phase, TaskFinished, TaskStarted
from tuner.workers.jobs.promotion import NothingVerified, Promotion, promote
from tuner.workers.jobs.task import TaskRun, known_outcomes, notice_to, search, searcher_of
from tuner.workers.jobs.timeline import Timeline, join
from tuner.workload.spec import from_document
from tuner.workload.workload import Workload

WINNERS = 8  # configs of earlier kernels that a search tries first
# of these from kernels of the same model: a first turn is short, and the estimate's own
# schedules are to be in it
ALIKE = 2


class _Interrupted(Exception):
    """The job is to stop before its search has begun."""


class JobRun:
    """One claimed job."""

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
        """`order`: of the claim, among those of this orchestrator."""
        self._database, self._job, self._lease = database, job, lease
        self._fleet_cache, self._options, self._observer, self._interrupt = (
            fleet_cache,
            options,
            observer,
            interrupt,
        )
        self._standing = JobShare(
            job=job.id,
            owner=job.owner or "",
            priority=job.priority,
            order=order,
            threads=job.threads,
            trials_left=trials_left(job),
        )
        self._heart = Heartbeat(database, lease, lifetime_s=options.lease_s)
        self._unverified = False
        self._found: dict[
            int, tuple[str, Config]
        ] = {}  # of a model's kernels: of what kind, and the best config so far
        self._searchers: dict[
            int, Searcher
        ] = {}  # of a model's kernels, kept from turn to turn: a rebuilt one plans all anew

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
        except (
            Exception
        ) as error:  # a fault of ours: the job must not look as if somebody still worked on it
            self._finish(jobs.FAILED, f"internal error: {type(error).__name__}: {error}")
            raise
        return JobReport(job=job, unverified=self._unverified)

    def _work(self) -> Job:
        calls: Mapping[str, int] = {}
        if self._job.kind == jobs.MODEL:
            store = ArtifactStore(self._options.artifacts)
            self._job, calls = with_workloads(self._database, self._lease, self._job, store)
        tasks = unanswered(self._database, self._lease, self._job)
        if not tasks:
            self._whole()
            return self._finish(jobs.SUCCEEDED)
        fleet = self._fleet_cache.start(
            self._job.threads, self._job.target
        )  # Ray starts while the space is made
        with self._database.read() as session:
            target = targets.get(session, self._job.target)
        errors = []
        with fleet.joined(self._standing) as share:
            if calls:
                self._turns(tasks, calls, target, fleet, share)
            for task in tasks:
                if self._stopping():
                    break
                try:
                    error = self._task(task, target, fleet, share)
                except _Interrupted:
                    error = None
                if self._stopping():
                    break
                if error is not None:
                    errors.append(error)
        if self._stopping():
            return self._stopped()
        if errors:
            return self._finish(jobs.FAILED, "; ".join(errors))
        self._whole()
        return self._finish(jobs.SUCCEEDED)

    def _whole(self) -> None:
        """Of a model the library of all its kernels, once these are there."""
        if self._job.kind == jobs.MODEL:
            options, store = self._options, ArtifactStore(self._options.artifacts)
            lane = plan_machine(
                usable_nodes(), threads=self._job.threads, declared=options.lanes
            ).lanes[0]
            with_library(
                self._database, self._lease, self._job, store, lane.cores, options.signing_key
            )

    def _turns(
        self,
        tasks: Sequence[Task],
        calls: Mapping[str, int],
        target: Target,
        fleet: SharedFleet,
        share: JobChannel,
    ) -> None:
        """Searches the kernels of a model by turns, until its budget is spent or the
        job is to stop."""

        def search_slice(task: Task, trials: int, seconds: float | None) -> TuningResult | None:
            try:
                with self._opened(
                    task, target, fleet, share, replace(self._job, trials=trials, seconds=seconds)
                ) as run:
                    self._searchers[task.position] = run.searcher
                    result = search(run)
            except _Interrupted:
                return None
            self._found[task.position] = (
                kind_of(run.problem.workload.expression),
                result.best[0].config if result.best else {},
            )
            return result

        tune_by_turns(self._database, self._job, tasks, calls, search_slice)

    def _task(
        self, task: Task, target: Target, fleet: SharedFleet, share: JobChannel
    ) -> str | None:
        """Tunes one workload and promotes its kernel; the reason where it failed. A
        model's was searched before."""
        job = self._job
        if job.kind == jobs.MODEL:
            with self._database.read() as session:
                done = jobs.get(session, job.id).tasks[task.position].trials_done
            job = replace(job, trials=max(done, 1), seconds=None)
        with self._opened(task, target, fleet, share, job) as run:
            self._searchers.pop(task.position, None)
            result = search(run)
            if result.reason is StopReason.CANCELLED:
                return None
            return self._promote(run, result)

    @contextmanager
    def _opened(
        self, task: Task, target: Target, fleet: SharedFleet, share: JobChannel, job: Job
    ) -> Iterator[TaskRun]:
        """The task ready to be searched within the budget of `job`."""
        with self._database.read() as session:
            workload = from_document(workloads.get(session, task.workload).document)
            recorded = trials.of_task(session, self._job.id, task.position)
            winners = self._winners(session, workload, target)
        problem = Problem(
            workload=workload, target=target, threads=self._job.threads, seed=self._job.seed
        )
        space = space_of(workload, target, self._job.threads)
        with self._database.write("space") as session:
            leases.note_task(session, self._lease, task.position, space_size=space.space.size)
        started = TaskStarted(
            position=task.position,
            workload=workload,
            space_size=space.space.size,
            recorded=len(recorded),
            trials=job.trials,
            seconds=job.seconds,
        )
        self._observer(started)
        share.set_demand(
            trials_left=self._trials_left(task, len(recorded)),
            seconds_left=job.seconds,
            memory_bytes=workload.expression.nbytes,
        )
        share.submit(
            Submit(problem=problem, candidates=(), known_outcomes={})
        )  # lanes are made ready for it from now on
        self._observer(Phase(name="starting workers"))
        kept = self._searchers.get(task.position)
        # Its first batch is planned while the workers start.
        searcher, most = (
            (kept, job.trials)
            if kept
            else searcher_of(self._database, job, task, problem, space, winners)
        )
        fleet.wait_ready(self._check, self._note)
        share.set_demand(
            trials_left=share.job_share.trials_left,
            seconds_left=job.seconds,
            memory_bytes=workload.expression.nbytes,
        )
        timeline = Timeline(
            self._database, worker=join(self._database, target, fleet.plan), job=self._lease.job_id
        )
        judge = Judge(problem, core=fleet.plan.builder_cores[0], on_limits=self._note_limits)
        measurer = RayMeasurer(
            share,
            problem,
            known_outcomes=known_outcomes(recorded),
            judge=judge.judged,
            on_spans=timeline.add,
            on_calibrations=timeline.calibrated,
            on_notice=notice_to(self._observer),
        )
        run = TaskRun(
            database=self._database,
            lease=self._lease,
            job=job,
            task=task,
            problem=problem,
            space=space,
            searcher=searcher,
            trials=most,
            judge=judge,
            recorded=recorded,
            measurer=measurer,
            observer=self._observer,
            interrupted=self._stopping,
            check=self._heart.check,
        )
        try:
            self._observer(Phase(name="searching"))
            yield run
        finally:
            measurer.close()
            timeline.flush()

    def _trials_left(self, task: Task, recorded: int) -> int:
        """Of this workload and the job's later ones."""
        later = [
            other
            for other in self._job.tasks
            if other.position > task.position and other.state == jobs.QUEUED
        ]
        return max(0, self._job.trials - recorded) + sum(
            max(0, self._job.trials - other.trials_done) for other in later
        )

    def _winners(self, session: Session, workload: Workload, target: Target) -> list[Config]:
        """Configs of promoted kernels worth trying early: this workload's own, then
        those of its operator, the newest first."""
        threads = self._job.threads
        own = kernels.find_promoted(session, workload.key, target.key, threads)
        near = (
            kernels.neighbours(session, workload.op, target.key, threads, limit=WINNERS)
            if workload.op
            else ()
        )
        alike = [
            config
            for kind, config in self._found.values()
            if config and kind == kind_of(workload.expression)
        ][-ALIKE:]
        return [
            *(kernel.config for kernel in ((own,) if own else ()) + near if kernel.config),
            *alike,
        ][:WINNERS]

    def _note(self, text: str) -> None:
        with self._database.write("note") as session:
            events.append(session, self._job.id, "note", {"text": text})

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
                    signer=None
                    if self._options.signing_key is None
                    else signer_at(self._options.signing_key),
                )
            )
        except NothingVerified as failure:
            self._unverified = True
            error = str(failure)
        with self._database.write("task") as session:
            before = jobs.get(session, self._job.id).tasks[position].elapsed_s
            elapsed = {**before, "total": before.get("total", 0.0) + time.monotonic() - started}
            state = "succeeded" if kernel else "failed"
            leases.note_task(
                session, self._lease, position, state=state, elapsed_s=elapsed, error=error
            )
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
