"""Tunes the kernels of a model within the model's budget: rounds of search, then promotions.

Each winner is stored while the next race is prepared.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Never

from tuner.db import jobs
from tuner.db.errors import IncumbentChanged
from tuner.db.jobs import Job, Task
from tuner.db.kernels import Kernel
from tuner.export.artifacts import ArtifactStore
from tuner.measure.outcome import Trial
from tuner.models.tuning.task_scheduler import kind_of
from tuner.models.tuning.time_plan import TimePlan
from tuner.tuning import TuningResult
from tuner.workers.jobs.contest import FINALISTS, NothingVerified, contested
from tuner.workers.jobs.kernel_cache import keep, stored_kernels
from tuner.workers.jobs.model_jobs import ModelCalls
from tuner.workers.jobs.model_rounds import needless_tasks, tune_in_rounds
from tuner.workers.jobs.model_time import plan_of, say_late_again
from tuner.workers.jobs.options import Interrupted
from tuner.workers.jobs.promotion import settle
from tuner.workers.jobs.settlement import Settle, Settlement
from tuner.workers.jobs.task import LEAST_S, TaskRun, search
from tuner.workers.jobs.task_preparation import TaskPreparation
from tuner.workers.jobs.task_tuning import TaskTuning


def tune_kernels(
    tuning: TaskTuning, tasks: Sequence[Task], calls: ModelCalls, *, begun_s: float
) -> list[str]:
    """Searches and promotes the kernels of a model, until done or the job is to stop.

    The job began at `begun_s` of the monotonic clock. Returns the reasons of those that failed
    and are needed.
    """
    preparation = tuning.preparation
    job = preparation.job
    store = ArtifactStore(tuning.options.artifacts)
    stored = stored_kernels(preparation.database, job, tasks, store)
    plan = plan_of(job, tasks, calls.chains, stored, begin_s=begun_s)
    with Settlement(preparation.background) as settlement:
        kernels = _ModelKernels(
            tuning=tuning,
            tasks=tasks,
            calls=calls,
            stored=stored,
            plan=plan,
            settlement=settlement,
        )
        kernels.search()
        kernels.promote()
    return kernels.promote_changed()


@dataclass(frozen=True, slots=True, kw_only=True)
class _ModelKernels:
    """The kernels of a model, as far as their searches and promotions have come."""

    tuning: TaskTuning
    tasks: Sequence[Task]
    calls: ModelCalls
    stored: Mapping[int, Kernel]  # promoted by earlier jobs, by the place of the task
    plan: TimePlan  # numbers the kernels by the places of their tasks
    settlement: Settlement
    _errors: list[str] = field(init=False, default_factory=list)  # of kernels that are needed
    # tasks of which another job promoted a kernel meanwhile
    _changed: list[Task] = field(init=False, default_factory=list)

    @property
    def _preparation(self) -> TaskPreparation:
        return self.tuning.preparation

    def search(self) -> None:
        """Searches the kernels in rounds; promotes some between rounds, to learn its time."""
        preparation = self._preparation
        tune_in_rounds(
            preparation.database,
            preparation.job,
            self.tasks,
            self.calls,
            self._search_round,
            self.plan,
            preparation.observer,
            self._promote_one,
        )

    def _search_round(
        self, task: Task, trials: int, seconds: float | None, following: Task | None
    ) -> TuningResult | None:
        preparation = self._preparation
        budget = replace(preparation.job, trials=trials, seconds=seconds)
        begun_s = time.monotonic()
        try:
            with preparation.prepared(task, budget, following) as run:
                preparation.keep(run)
                if seconds is not None:  # of which workers may have taken some to start
                    left_s = max(seconds - (time.monotonic() - begun_s), LEAST_S)
                    run = replace(run, job=replace(budget, seconds=left_s))
                result = search(run)
        except Interrupted:
            return None
        best = result.best[0].config if result.best else {}
        preparation.best[task.position] = (kind_of(run.problem.workload.expression), best)
        return result

    def promote(self) -> None:
        """Promotes the kernels that are needed and not promoted yet.

        Each winner is stored while the next race is prepared, and so is a search that comes
        next. A stored kernel stays where there was no time for a trial.
        """
        preparation, plan, done = self._preparation, self.plan, set[int]()
        if not preparation.stopping():
            database, lease = preparation.database, preparation.lease
            done |= needless_tasks(database, lease, self.tasks, self.calls)
            kept = {number for number in self.stored if plan.keeps(number)} - done
            pairs = [(self.tasks[number], self.stored[number]) for number in kept]
            keep(database, lease, pairs, preparation.observer)
            done |= kept
        for number in done:
            plan.skipped(number)
        # A lane still holds what the kernels are verified by that were searched last.
        latest = {position: place for place, position in enumerate(preparation.searched)}
        left = [number for number in range(len(self.tasks)) if not plan.is_promoted(number)]
        left.sort(key=lambda number: -latest.get(self.tasks[number].position, -1))
        for place, number in enumerate(left):
            if preparation.stopping():
                break
            following = [self.tasks[other] for other in left[place + 1 : place + 2]]
            self._promote_one(number, following)

    def promote_changed(self) -> list[str]:
        """Promotes kernels again of which another job promoted one meanwhile.

        Returns the reasons of all that failed and are needed.
        """
        for task in self._changed:
            if not self._preparation.stopping():
                with suppress(Interrupted):
                    self._note(self.tuning.tune(task, self._spent(task)))
        return self._errors

    def _promote_one(self, number: int, following: Sequence[Task] = ()) -> bool:
        """Promotes a kernel and notes what it took; whether that came to an end.

        `number` is its own in the plan.
        """
        task = self.tasks[number]
        plan, budget = self.plan, self._spent(task)
        finalists, begun_s = plan.finalists(number), time.monotonic()
        with suppress(Interrupted):
            self.tuning.tune(
                task, budget, partial(self._promote_beside, finalists=finalists), following
            )
        if self._preparation.stopping():
            return False
        raced = min(budget.trials, finalists or FINALISTS)
        plan.promoted(number, raced, time.monotonic() - begun_s)
        preparation = self._preparation
        say_late_again(preparation.database, preparation.job, plan, preparation.observer)
        return True

    def _promote_beside(
        self, run: TaskRun, best: Sequence[Trial], *, finalists: int | None
    ) -> None:
        """Races for a kernel, and has its winner stored beside what comes next."""

        def quiet(contestants: int) -> None:
            self.settlement.end()
            self._preparation.rest(contestants)

        promotion = self.tuning.begin_promotion(run, best, finalists, quiet)
        began_s = time.monotonic()

        def end(store: Settle, raced_s: float = 0.0) -> None:
            try:
                self._note(self.tuning.end(run, store, raced_s))
            except IncumbentChanged:
                self._changed.append(run.task)

        try:
            contest = contested(promotion)
        except NothingVerified as failure:
            end(partial(_fail, failure))
            return
        raced_s = time.monotonic() - began_s
        self.settlement.begin(partial(settle, promotion, contest), partial(end, raced_s=raced_s))

    def _note(self, error: str | None) -> None:
        if error is not None:
            self._errors.append(error)

    def _spent(self, task: Task) -> Job:
        """The budget of a task that was searched: of the trials it has had, or of one."""
        preparation = self._preparation
        with preparation.database.read() as session:
            done = jobs.get(session, preparation.job.id).tasks[task.position].trials_done
        return replace(preparation.job, trials=max(done, 1), seconds=None)


def _fail(failure: Exception) -> Never:
    raise failure
