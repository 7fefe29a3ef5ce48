"""Tunes the tasks of a job: searches each, promotes its kernel, and records how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tuner.db import jobs, leases, trials
from tuner.db.jobs import Job, Task
from tuner.export.artifacts import ArtifactStore
from tuner.export.signature import signer_at
from tuner.measure.cache import WARM
from tuner.measure.outcome import Trial
from tuner.tuning import StopReason
from tuner.workers.jobs.contest import NothingVerified, Promotion
from tuner.workers.jobs.options import OrchestratorOptions
from tuner.workers.jobs.progress import Phase, TaskFinished
from tuner.workers.jobs.promotion import promote
from tuner.workers.jobs.settlement import Settle
from tuner.workers.jobs.task import TaskRun, search
from tuner.workers.jobs.task_preparation import TaskPreparation


@dataclass(slots=True, kw_only=True)
class TaskTuning:
    """Tunes the tasks of one job, each within a budget that its caller gives."""

    preparation: TaskPreparation
    options: OrchestratorOptions
    # keys of workloads that a model can do without: its chains and siblings as one
    dispensable: frozenset[str] = frozenset()
    unverified: bool = False  # whether a kernel that is needed could not be verified

    def tune(
        self,
        task: Task,
        budget: Job,
        promote_kernel: Callable[[TaskRun, Sequence[Trial]], str | None] | None = None,
        following: Sequence[Task] = (),
    ) -> str | None:
        """Tunes one workload within a budget and promotes its kernel; the reason if it failed.

        The workloads of a model were searched before, and are only promoted. One that had
        no trials for lack of time has the favourite of the estimate tried. Tasks that are
        `following` are prepared beside it.
        """
        preparation = self.preparation
        with preparation.prepared(task, budget, single=budget.kind == jobs.MODEL) as run:
            preparation.forget(task)
            for other in following:
                preparation.look_ahead(other, single=True, announced=False)
            result = search(run)
            if result.reason is StopReason.CANCELLED:
                return None
            return (promote_kernel or self._promote)(run, result.best)

    def begin_promotion(
        self,
        run: TaskRun,
        best: Sequence[Trial],
        finalists: int | None = None,
        quiet: Callable[[int], None] = lambda contestants: None,
    ) -> Promotion:
        """Announces the promotion of a task's kernel; returns what it needs.

        `finalists` and `quiet` are as in Promotion.
        """
        preparation, key = self.preparation, self.options.signing_key
        preparation.observer(Phase(name="promotion"))
        return Promotion(
            run=run,
            best=best,
            artifacts=ArtifactStore(self.options.artifacts),
            check=preparation.check,
            signer=None if key is None else signer_at(key),
            finalists=finalists,
            trials=self._trials(run),
            # A canary wins by races, and those are run with warm caches.
            canary=preparation.job.kind == jobs.TUNE
            and preparation.job.cache == WARM
            and self.options.canary_races > 0,
            quiet=quiet,
        )

    def end(self, run: TaskRun, store: Settle, raced_s: float = 0.0) -> str | None:
        """Ends a task by the kernel that `store` gives; the reason if it failed and is needed.

        `raced_s`: seconds that its promotion has taken before. Raises what `store` raises but
        NothingVerified.
        """
        preparation = self.preparation
        # A model can do without a fast variant, a chain, and siblings as one.
        needed = preparation.job.kind != jobs.MODEL or (
            run.problem.workload.numerics == "strict" and run.task.workload not in self.dispensable
        )
        error = kernel = None
        started, position = time.monotonic(), run.task.position
        try:
            kernel = store()
        except NothingVerified as failure:
            self.unverified = self.unverified or needed
            error = str(failure)
        took_s = raced_s + time.monotonic() - started
        with preparation.database.write("task") as session:
            before = jobs.get(session, preparation.job.id).tasks[position].elapsed_s
            elapsed = {**before, "total": before.get("total", 0.0) + took_s}
            state = "succeeded" if kernel else "failed"
            leases.note_task(
                session, preparation.lease, position, state=state, elapsed_s=elapsed, error=error
            )
        preparation.observer(TaskFinished(position=position, kernel=kernel, error=error))
        return error if needed else None

    def _promote(self, run: TaskRun, best: Sequence[Trial]) -> str | None:
        """Promotes the task's kernel; the reason if it failed and is needed."""
        return self.end(run, partial(promote, self.begin_promotion(run, best)))

    def _trials(self, run: TaskRun) -> Sequence[Trial]:
        """All trials of a task, where they are judged by more than time."""
        if not run.job.goal.of_trials:
            return ()
        with self.preparation.database.read() as session:
            return trials.of_task(session, run.job.id, run.task.position)
