"""Prepares the tasks of a job: space, searcher and measurer, on the job's share of a fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tuner.db import events, jobs, kernels, leases, targets, tasks, trials, workloads
from tuner.db.engine import Database, Session
from tuner.db.jobs import Job, Task
from tuner.db.leases import Lease
from tuner.measure.assignment import Lane
from tuner.measure.device.room import check_room
from tuner.measure.outcome import Trial
from tuner.models.tuning.task_scheduler import kind_of
from tuner.search.searcher import Searcher
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Config
from tuner.spaces.core.target_space import TargetSpace
from tuner.target.target import Limits as MachineLimits
from tuner.target.target import Target
from tuner.workers.backends.table import backend_of
from tuner.workers.fleet.job_share import JobChannel, SharedFleet
from tuner.workers.fleet.lanes import lane
from tuner.workers.fleet.messages import Problem, Submit
from tuner.workers.fleet.ray_measurer import RayMeasurer
from tuner.workers.jobs.plausibility import Judge
from tuner.workers.jobs.progress import Observer, Phase, TaskStarted
from tuner.workers.jobs.search import Begin
from tuner.workers.jobs.task import TaskRun, default_fits, known_outcomes, notice_to, search_of
from tuner.workers.jobs.timeline import Timeline, join
from tuner.workload.spec import from_document
from tuner.workload.workload import Workload

WINNERS = 8  # configs of earlier kernels that a search tries first
# Of these, configs of kernels of the same model: a first round is short, and must have
# room for the estimate's own schedules.
ALIKE = 2


def note_limits(database: Database, target: str, limits: MachineLimits) -> None:
    """Stores limits of a target that were measured again during a job."""
    with database.write("limits") as session:
        targets.set_limits(session, target, limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Groundwork:
    """What a new search of a task starts from, whatever the other tasks of its job find."""

    problem: Problem
    space: TargetSpace[Any]
    begin: Begin
    trials: int | None  # at most in all, where that is not the budget's


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """The search of a task, which its next round continues."""

    problem: Problem
    space: TargetSpace[Any]
    searcher: Searcher


@dataclass(frozen=True, kw_only=True)
class TaskPreparation:
    """Prepares the tasks of one job for their searches.

    Keeps what the kernels of a model learn from each other: searchers, which continue
    from round to round instead of planning anew, and the best configs so far.
    """

    database: Database
    job: Job
    lease: Lease
    target: Target
    fleet: SharedFleet
    channel: JobChannel
    observer: Observer
    check_lease: Callable[[], None]  # raises once the lease is lost
    check: Callable[[], None]  # raises once the job is to stop, too
    stopping: Callable[[], bool]
    background: Executor  # of one thread, which prepares the next task
    # by position of the task, the latest round at the end
    _kept: dict[int, _Kept] = field(init=False, default_factory=dict)
    _ahead: dict[int, Future[_Groundwork]] = field(init=False, default_factory=dict)
    # by position of the task: the kind of its kernel, and its best config
    best: dict[int, tuple[str, Config]] = field(default_factory=dict)

    @contextmanager
    def prepared(
        self, task: Task, budget: Job, following: Task | None = None, *, single: bool = False
    ) -> Iterator[TaskRun]:
        """The task, ready to be searched within the trials and seconds of `budget`.

        The workers get ready while the space and the first batch are made. The task that is
        `following` is prepared beside it from then on. `single`: whether it has one trial, and
        none later. Raises UsageError for tensors that a device has no room for.
        """
        kept, ahead = self._kept.get(task.position), self._ahead.pop(task.position, None)
        groundwork = None if ahead is None else ahead.result()
        made = kept or groundwork
        if made is not None:
            problem, space = made.problem, made.space
        else:
            problem = self._problem(task)
            space = self._space(problem)
        with self.database.read() as session:
            recorded = trials.of_task(session, self.job.id, task.position)
            # Of earlier rounds and runs, to which the seconds of this one are added.
            task = replace(task, elapsed_s=tasks.elapsed_s(session, self.job.id, task.position))
        check_room(problem.workload, self.fleet.plan.lanes)
        self._begin(task, budget, problem, space, len(recorded))
        if kept is not None:
            searcher, most = kept.searcher, budget.trials
        else:
            groundwork = groundwork or self._groundwork(task, problem, space, single=single)
            with self.database.read() as session:
                winners = self._winners(session, problem.workload)
            searcher, most = groundwork.begin(winners), groundwork.trials or budget.trials
        if following is not None:
            self.look_ahead(following)
        self.fleet.wait_ready(self.check, self._note)
        self._set_demand(problem, budget, trials_left=self.channel.job_share.trials_left)
        timeline = Timeline(
            self.database,
            worker=join(self.database, self.target, self.fleet.plan),
            job=self.lease.job_id,
        )
        judge = Judge(
            problem,
            remeasured=partial(backend_of(self.target).limits, self.target, self._spare_lane()),
            on_limits=lambda limits: note_limits(self.database, self.job.target, limits),
        )
        measurer = self._measurer(problem, recorded, judge, timeline)
        run = TaskRun(
            database=self.database,
            lease=self.lease,
            job=budget,
            task=task,
            problem=problem,
            space=space,
            searcher=searcher,
            trials=most,
            judge=judge,
            recorded=recorded,
            measurer=measurer,
            observer=self.observer,
            interrupted=self.stopping,
            check=self.check_lease,
            default_fits=default_fits(
                problem,
                run_timeout_s=self.fleet.plan.limits.run_timeout_s,
                seconds=self.job.seconds,
            ),
        )
        try:
            self.observer(Phase(name="searching"))
            yield run
        finally:
            measurer.close()
            timeline.flush()

    def look_ahead(self, task: Task, *, single: bool = False, announced: bool = True) -> None:
        """Begins to prepare the task that comes next, while another one is measured.

        The thread makes its searcher. A lane to which it is `announced` makes what its
        candidates are verified by. Only the winners of other tasks are missing, which it gets
        when its turn has come. `single` is as in `prepared`.
        """
        if task.position in self._kept or task.position in self._ahead:
            return
        problem = self._problem(task)
        if announced:
            self.channel.submit(Submit(problem=problem, candidates=(), known_outcomes={}))
        self._ahead[task.position] = self.background.submit(
            self._groundwork, task, problem, single=single
        )

    def rest(self, contestants: int) -> None:
        """Waits, before a race of so many, until nothing is prepared that it would notice.

        A race of one compares nothing, and on a lane of its own it is disturbed no more than
        a trial is.
        """
        if contestants > 1 or self.fleet.plan.alternates:
            wait(self._ahead.values())

    def keep(self, run: TaskRun) -> None:
        """Keeps the search of a task for its next round."""
        self._kept.pop(run.task.position, None)
        self._kept[run.task.position] = _Kept(
            problem=run.problem, space=run.space, searcher=run.searcher
        )

    @property
    def searched(self) -> tuple[int, ...]:
        """Positions of the tasks whose searches are kept, the latest round at the end."""
        return tuple(self._kept)

    def forget(self, task: Task) -> None:
        """Forgets the search of a task, which has had its last round."""
        self._kept.pop(task.position, None)

    def _problem(self, task: Task) -> Problem:
        with self.database.read() as session:
            workload = from_document(workloads.get(session, task.workload).document)
        return Problem(
            workload=workload,
            target=self.target,
            threads=self.job.threads,
            seed=self.job.seed,
            cache=self.job.cache,
        )

    def _space(self, problem: Problem) -> TargetSpace[Any]:
        return space_of(problem.workload, self.target, self.job.threads)

    def _groundwork(
        self,
        task: Task,
        problem: Problem,
        space: TargetSpace[Any] | None = None,
        *,
        single: bool = False,
    ) -> _Groundwork:
        """Depends on no other task of the job: it may be made while another one is searched."""
        space = space or self._space(problem)
        begin, most = search_of(self.database, self.job, task, problem, space, single=single)
        return _Groundwork(problem=problem, space=space, begin=begin, trials=most)

    def _spare_lane(self) -> Lane:
        """Where limits are measured again: the first GPU or device, or a builder's core."""
        first = self.fleet.plan.lanes[0]
        if self.target.on_device or first.device is not None:
            return first
        return lane(self.fleet.plan.builder_cores[:1])

    def _begin(
        self, task: Task, budget: Job, problem: Problem, space: TargetSpace[Any], recorded: int
    ) -> None:
        """Announces the task, and has the lanes made ready for it."""
        size = space.space.size
        with self.database.write("space") as session:
            leases.note_task(session, self.lease, task.position, space_size=size)
        self.observer(
            TaskStarted(
                position=task.position,
                workload=problem.workload,
                space_size=size,
                recorded=recorded,
                trials=budget.trials,
                seconds=budget.seconds,
            )
        )
        self._set_demand(problem, budget, trials_left=self._trials_left(task, recorded))
        self.channel.submit(Submit(problem=problem, candidates=(), known_outcomes={}))
        self.observer(Phase(name="starting workers"))

    def _set_demand(self, problem: Problem, budget: Job, *, trials_left: int) -> None:
        self.channel.set_demand(
            trials_left=trials_left,
            seconds_left=budget.seconds,
            memory_bytes=problem.workload.expression.nbytes,
        )

    def _measurer(
        self, problem: Problem, recorded: Sequence[Trial], judge: Judge, timeline: Timeline
    ) -> RayMeasurer:
        return RayMeasurer(
            self.channel,
            problem,
            known_outcomes=known_outcomes(recorded),
            judge=judge.judged,
            on_spans=timeline.add,
            on_calibrations=timeline.calibrated,
            on_notice=notice_to(self.observer),
        )

    def _trials_left(self, task: Task, recorded: int) -> int:
        """Trials left in the budgets of this task and the job's later ones."""
        later = [
            other
            for other in self.job.tasks
            if other.position > task.position and other.state == jobs.QUEUED
        ]
        return max(0, self.job.trials - recorded) + sum(
            max(0, self.job.trials - other.trials_done) for other in later
        )

    def _winners(self, session: Session, workload: Workload) -> list[Config]:
        """Configs of promoted kernels that are worth trying early.

        The workload's own, then those of its operator, the newest first, then those of
        the same kind of kernel in this job.
        """
        threads, cache = self.job.threads, self.job.cache
        own = kernels.find_promoted(session, workload.key, self.target.key, threads, cache=cache)
        promoted = [] if own is None else [own]
        if workload.op:
            promoted += kernels.neighbours(
                session, workload.op, self.target.key, threads, cache=cache, limit=WINNERS
            )
        kind = kind_of(workload.expression)
        alike = [config for other, config in self.best.values() if config and other == kind]
        return [*(kernel.config for kernel in promoted if kernel.config), *alike[-ALIKE:]][:WINNERS]

    def _note(self, text: str) -> None:
        with self.database.write("note") as session:
            events.append(session, self.job.id, "note", {"text": text})
