"""Runs one claimed job: tunes its workloads on its share of the fleet, promotes kernels."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Never

from tuner.db import jobs, leases, targets, trials
from tuner.db.engine import Database
from tuner.db.errors import IncumbentChanged, StaleLease
from tuner.db.jobs import Job, Task
from tuner.db.kernels import Kernel
from tuner.db.leases import Lease
from tuner.errors import DatabaseError, TunerError
from tuner.export.artifacts import ArtifactStore
from tuner.export.signature import signer_at
from tuner.measure.cache import WARM
from tuner.measure.outcome import Trial
from tuner.models.tuning.task_scheduler import kind_of
from tuner.models.tuning.time_plan import TimePlan
from tuner.tuning import StopReason, TuningResult
from tuner.workers.fleet.policy import JobShare
from tuner.workers.jobs.admission import trials_left
from tuner.workers.jobs.fleet_cache import FleetCache
from tuner.workers.jobs.heartbeat import Heartbeat
from tuner.workers.jobs.judging import judge_task
from tuner.workers.jobs.kernel_cache import keep, stored_kernels, unanswered
from tuner.workers.jobs.model_executor import model_executor
from tuner.workers.jobs.model_jobs import (
    ModelCalls,
    needless_tasks,
    tune_in_rounds,
    with_library,
    with_workloads,
)
from tuner.workers.jobs.options import Interrupt, Interruption, JobReport, OrchestratorOptions
from tuner.workers.jobs.progress import Observer, Phase, TaskFinished
from tuner.workers.jobs.promotion import (
    FINALISTS,
    NothingVerified,
    Promotion,
    contested,
    promote,
    settle,
)
from tuner.workers.jobs.reracing import rerace_task
from tuner.workers.jobs.settlement import Settle, Settlement
from tuner.workers.jobs.task import TaskRun, search
from tuner.workers.jobs.task_preparation import TaskPreparation

SWITCHED_OFF = (
    "this service compiles nobody's sources any more; resume the job once its operator has set "
    "candidates to on"
)
LEAST_S = 0.1  # seconds of a round that began late


class _Interrupted(Exception):
    """The job is to stop before its search has begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Promotions:
    """The promotions of a model's kernels, as far as they have come."""

    preparation: TaskPreparation
    plan: TimePlan
    settlement: Settlement
    errors: list[str] = field(default_factory=list)  # of kernels that failed and are needed
    # tasks of which another job promoted a kernel meanwhile
    changed: list[Task] = field(default_factory=list)


def _fail(failure: Exception) -> Never:
    raise failure


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
        self._unverified = False
        self._dispensable: frozenset[str] = frozenset()  # keys of chains and siblings
        self._stored: Mapping[int, Kernel] = {}  # of a model, by the place of the task

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
        return JobReport(job=job, unverified=self._unverified)

    def _work(self) -> Job:
        if self._job.kind == jobs.JUDGE and not self._options.judges:
            # It was queued before the operator switched that off.
            return self._finish(jobs.FAILED, SWITCHED_OFF)
        calls: ModelCalls | None = None
        begun_s = time.monotonic()
        if self._job.kind == jobs.MODEL:
            store = ArtifactStore(self._options.artifacts)
            self._job, calls = with_workloads(self._database, self._lease, self._job, store)
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
            if calls is not None:
                self._dispensable = frozenset(calls.chains)
                self._stored = stored_kernels(
                    self._database, self._job, tasks, ArtifactStore(self._options.artifacts)
                )
                plan = TimePlan(
                    seconds=self._job.seconds,
                    kernels=len(tasks),
                    clock=time.monotonic,
                    begin_s=begun_s,
                    optional=frozenset(
                        place for place, task in enumerate(tasks) if task.workload in calls.chains
                    ),
                    stored=frozenset(self._stored),
                )
                with Settlement(background) as settlement:
                    promotions = _Promotions(
                        preparation=preparation, plan=plan, settlement=settlement
                    )
                    self._search_model(tasks, calls, promotions)
                    self._promote_model(tasks, calls, promotions)
                errors = self._promote_changed(promotions)
            elif self._job.kind == jobs.JUDGE:
                errors = self._each(tasks, preparation, self._judge)
            elif self._job.kind == jobs.RERACE:
                errors = self._each(tasks, preparation, self._rerace)
            else:
                errors = self._each(tasks, preparation, self._tune)
        if self._stopping():
            return self._stopped()
        if errors:
            return self._finish(jobs.FAILED, "; ".join(errors))
        return self._succeed()

    def _succeed(self) -> Job:
        """Ends the job as succeeded; a model's job first gets the library of all its kernels."""
        if self._job.kind == jobs.MODEL:
            store = ArtifactStore(self._options.artifacts)
            with_library(
                self._database,
                self._lease,
                self._job,
                store,
                partial(model_executor, self._options, threads=self._job.threads),
                self._options.signing_key,
            )
        return self._finish(jobs.SUCCEEDED)

    def _search_model(
        self,
        tasks: Sequence[Task],
        calls: ModelCalls,
        promotions: _Promotions,
    ) -> None:
        """Searches the kernels of a model in rounds, within the model's budget."""
        preparation, plan = promotions.preparation, promotions.plan

        def search_round(
            task: Task, trials: int, seconds: float | None, following: Task | None
        ) -> TuningResult | None:
            budget = replace(self._job, trials=trials, seconds=seconds)
            begun_s = time.monotonic()
            try:
                with preparation.prepared(task, budget, following) as run:
                    preparation.keep(run)
                    if seconds is not None:  # of which workers may have taken some to start
                        left_s = max(seconds - (time.monotonic() - begun_s), LEAST_S)
                        run = replace(run, job=replace(budget, seconds=left_s))
                    result = search(run)
            except _Interrupted:
                return None
            best = result.best[0].config if result.best else {}
            preparation.best[task.position] = (kind_of(run.problem.workload.expression), best)
            return result

        def promote_one(place: int) -> bool:
            self._promote_next(tasks[place], place, promotions)
            return not self._stopping()

        tune_in_rounds(
            self._database,
            self._job,
            tasks,
            calls,
            search_round,
            plan,
            self._observer,
            promote_one,
        )

    def _promote_model(
        self, tasks: Sequence[Task], calls: ModelCalls, promotions: _Promotions
    ) -> None:
        """Promotes the kernels of a model.

        Each winner is stored while the next race is prepared, and so is a search that comes
        next. A stored kernel stays where there was no time for a trial.
        """
        plan, done = promotions.plan, set[int]()
        if not self._stopping():
            done |= needless_tasks(self._database, self._lease, tasks, calls)
            kept = {number for number in self._stored if plan.keeps(number)} - done
            pairs = [(tasks[number], self._stored[number]) for number in kept]
            keep(self._database, self._lease, pairs, self._observer)
            done |= kept
        for number in done:
            plan.skipped(number)
        # A lane still holds what the kernels are verified by that were searched last.
        searched = promotions.preparation.searched
        latest = {position: place for place, position in enumerate(searched)}
        left = [number for number in range(len(tasks)) if not plan.is_promoted(number)]
        left.sort(key=lambda number: -latest.get(tasks[number].position, -1))
        for place, number in enumerate(left):
            if self._stopping():
                break
            following = [tasks[other] for other in left[place + 1 : place + 2]]
            self._promote_next(tasks[number], number, promotions, following)

    def _promote_next(
        self,
        task: Task,
        number: int,
        promotions: _Promotions,
        following: Sequence[Task] = (),
    ) -> None:
        """Promotes a kernel of a model, `number` in the plan, and notes what it took."""
        plan, budget = promotions.plan, self._spent(task)
        finalists, begun_s = plan.finalists(number), time.monotonic()
        promote_beside = partial(self._promote_beside, promotions=promotions, finalists=finalists)
        with suppress(_Interrupted):
            self._tune(task, promotions.preparation, budget, promote_beside, following)
        if not self._stopping():
            raced = min(budget.trials, finalists or FINALISTS)
            plan.promoted(number, raced, time.monotonic() - begun_s)

    def _promote_changed(self, promotions: _Promotions) -> list[str]:
        """Promotes kernels again of which another job promoted one meanwhile.

        Returns the reasons of all of the model's that failed.
        """
        for task in promotions.changed:
            if not self._stopping():
                with suppress(_Interrupted):
                    error = self._tune(task, promotions.preparation, self._spent(task))
                    promotions.errors.extend([] if error is None else [error])
        return promotions.errors

    def _spent(self, task: Task) -> Job:
        """The budget of a task that was searched: of the trials it has had, or of one."""
        with self._database.read() as session:
            done = jobs.get(session, self._job.id).tasks[task.position].trials_done
        return replace(self._job, trials=max(done, 1), seconds=None)

    def _each(
        self,
        tasks: Sequence[Task],
        preparation: TaskPreparation,
        work: Callable[[Task, TaskPreparation, Job], str | None],
    ) -> list[str]:
        """Does the tasks one after the other; returns the reasons of those that failed."""
        errors = []
        for task in tasks:
            if self._stopping():
                break
            try:
                error = work(task, preparation, self._job)
            except _Interrupted:
                error = None
            if self._stopping():
                break
            if error is not None:
                errors.append(error)
        return errors

    def _tune(
        self,
        task: Task,
        preparation: TaskPreparation,
        budget: Job,
        promote_kernel: Callable[[TaskRun, Sequence[Trial]], str | None] | None = None,
        following: Sequence[Task] = (),
    ) -> str | None:
        """Tunes one workload within a budget and promotes its kernel; the reason if it failed.

        The workloads of a model were searched before, and are only promoted. One that had
        no trials for lack of time has the favourite of the estimate tried. Tasks that are
        `following` are prepared beside it.
        """
        with preparation.prepared(task, budget, single=budget.kind == jobs.MODEL) as run:
            preparation.forget(task)
            for other in following:
                preparation.look_ahead(other, single=True, announced=False)
            result = search(run)
            if result.reason is StopReason.CANCELLED:
                return None
            return (promote_kernel or self._promote)(run, result.best)

    def _judge(self, task: Task, preparation: TaskPreparation, budget: Job) -> str | None:
        """Judges the foreign kernel of a job; the reason if the machine failed."""
        with preparation.prepared(task, budget) as run:
            error = judge_task(run, ArtifactStore(self._options.artifacts), self._check)
        self._observer(TaskFinished(position=task.position, kernel=None, error=error))
        return error

    def _rerace(self, task: Task, preparation: TaskPreparation, budget: Job) -> str | None:
        """Races the promoted kernel of a workload again; the reason if that failed."""
        store, races = ArtifactStore(self._options.artifacts), self._options.canary_races
        with preparation.prepared(task, budget) as run:
            kernel, error = rerace_task(run, store, self._check, canary_races=races)
        self._observer(TaskFinished(position=task.position, kernel=kernel, error=error))
        return error

    def _promote(self, run: TaskRun, best: Sequence[Trial]) -> str | None:
        """Promotes the task's kernel; the reason if it failed and is needed."""
        self._observer(Phase(name="promotion"))
        return self._settled(run, partial(promote, self._promotion(run, best)))

    def _promote_beside(
        self,
        run: TaskRun,
        best: Sequence[Trial],
        *,
        promotions: _Promotions,
        finalists: int | None,
    ) -> None:
        """Races for a model's kernel, and has its winner stored beside what comes next."""
        self._observer(Phase(name="promotion"))

        def quiet(contestants: int) -> None:
            promotions.settlement.end()
            promotions.preparation.rest(contestants)

        promotion, began_s = self._promotion(run, best, finalists, quiet), time.monotonic()

        def settled(store: Settle, raced_s: float = 0.0) -> None:
            try:
                error = self._settled(run, store, raced_s)
            except IncumbentChanged:
                promotions.changed.append(run.task)
            else:
                promotions.errors.extend([] if error is None else [error])

        try:
            contest = contested(promotion)
        except NothingVerified as failure:
            settled(partial(_fail, failure))
            return
        raced_s = time.monotonic() - began_s
        promotions.settlement.begin(
            partial(settle, promotion, contest), partial(settled, raced_s=raced_s)
        )

    def _promotion(
        self,
        run: TaskRun,
        best: Sequence[Trial],
        finalists: int | None = None,
        quiet: Callable[[int], None] = lambda contestants: None,
    ) -> Promotion:
        key = self._options.signing_key
        return Promotion(
            run=run,
            best=best,
            artifacts=ArtifactStore(self._options.artifacts),
            check=self._check,
            signer=None if key is None else signer_at(key),
            finalists=finalists,
            trials=self._trials(run),
            # A canary wins by races, and those are run with warm caches.
            canary=self._job.kind == jobs.TUNE
            and self._job.cache == WARM
            and self._options.canary_races > 0,
            quiet=quiet,
        )

    def _settled(self, run: TaskRun, store: Settle, raced_s: float = 0.0) -> str | None:
        """Ends a task by the kernel that `store` gives; the reason if it failed and is needed.

        `raced_s`: seconds that its promotion has taken before. Raises what `store` raises but
        NothingVerified.
        """
        # A model can do without a fast variant, a chain, and siblings as one.
        needed = self._job.kind != jobs.MODEL or (
            run.problem.workload.numerics == "strict" and run.task.workload not in self._dispensable
        )
        error = kernel = None
        started, position = time.monotonic(), run.task.position
        try:
            kernel = store()
        except NothingVerified as failure:
            self._unverified = self._unverified or needed
            error = str(failure)
        took_s = raced_s + time.monotonic() - started
        with self._database.write("task") as session:
            before = jobs.get(session, self._job.id).tasks[position].elapsed_s
            elapsed = {**before, "total": before.get("total", 0.0) + took_s}
            state = "succeeded" if kernel else "failed"
            leases.note_task(
                session, self._lease, position, state=state, elapsed_s=elapsed, error=error
            )
        self._observer(TaskFinished(position=position, kernel=kernel, error=error))
        return error if needed else None

    def _trials(self, run: TaskRun) -> Sequence[Trial]:
        """All trials of a task, where they are judged by more than time."""
        if not run.job.goal.of_trials:
            return ()
        with self._database.read() as session:
            return trials.of_task(session, run.job.id, run.task.position)

    def _check(self) -> None:
        """Raises once the job is to stop; called between steps that cannot be interrupted."""
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
