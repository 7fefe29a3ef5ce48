"""A job as its page shows it: one of its workloads, with the times it is compared to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tuner.api.auth import Caller
from tuner.api.dashboard import history, labels, limits
from tuner.api.dashboard.charts.curve import DEFAULT, Axes, Curve, Level
from tuner.api.problems import Problem
from tuner.api.routes.jobs import seen
from tuner.api.work_time import WorkTime, work_time
from tuner.db import charts, kernels, runners, targets, workloads
from tuner.db.engine import Session
from tuner.db.jobs import FINISHED, MODEL, QUEUED, RUNNING, Job, Task
from tuner.db.kernels import Kernel
from tuner.db.workloads import StoredWorkload
from tuner.search.expectation import Expectation, expect
from tuner.target.target import Target
from tuner.workload.workload import Workload

NEXT = 64  # trials that the expected gain is given for
RIVALS = 5  # lines of libraries in the curve
STOPPED = {  # why a search ended before its budget of trials was spent, in the words of the page
    "seconds": "budget of time spent",
    "target": "at the roofline",
    "exhausted": "every config tried",
    "cancelled": "cancelled",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A workload's result and the time of the default schedule from the same source.

    A race runs the kernel and the default schedule alternately, in fresh processes; a trial
    was timed only once. The two differ, so that pages name the source of each figure.
    """

    source: Literal["race", "trial"]
    median_s: float
    default_s: float | None  # of the default schedule in the same race, or in trial 0

    @property
    def speedup(self) -> float | None:
        return self.default_s / self.median_s if self.default_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    job: Job
    position: int
    specs: Sequence[str]  # of all its workloads
    stored: StoredWorkload
    workload: Workload | None
    target: Target
    kernel: Kernel | None  # the one the task ended with
    default_s: float | None
    least_s: float | None  # at the roofline
    waiting: str | None  # what a queued job waits for that no runner of its target is there for
    work: WorkTime

    @property
    def label(self) -> str:
        return self.specs[self.position]

    @property
    def task(self) -> Task:
        return self.job.tasks[self.position]

    @property
    def finished(self) -> bool:
        return self.job.state in FINISHED

    @property
    def best_s(self) -> float | None:
        """The median of the fastest trial."""
        return self.task.best_median_s

    @property
    def best_trial(self) -> Figures | None:
        if not self.best_s:
            return None
        return Figures(source="trial", median_s=self.best_s, default_s=self.default_s)

    @property
    def race(self) -> Figures | None:
        """The figures of the kernel the task ended with."""
        if self.kernel is None:
            return None
        return Figures(
            source="race",
            median_s=self.kernel.median_s,
            default_s=self.kernel.default_median_s,
        )

    @property
    def figures(self) -> Figures | None:
        """The figures of the race if there was one, else of the best trial."""
        return self.race or self.best_trial

    @property
    def fraction(self) -> float | None:
        """The share of the roofline that `figures` reach."""
        return self.least_s / self.figures.median_s if self.least_s and self.figures else None

    @property
    def gflops(self) -> float | None:
        flops = self.workload.expression.flops if self.workload else 0
        return flops / self.figures.median_s / 1e9 if flops and self.figures else None

    @property
    def stopped(self) -> str | None:
        """Why the search ended before its budget of trials; None if it did not."""
        return STOPPED.get(self.task.stopped or "") if self.finished else None

    @property
    def failed(self) -> int:
        return self.task.trials_done - self.task.trials_ok

    @property
    def elapsed_s(self) -> float | None:
        """The time spent on the job, without the pauses between its runs."""
        return self.work.total_s

    @property
    def rate(self) -> float | None:
        """Trials a second, of all workloads together."""
        done = sum(task.trials_done for task in self.job.tasks)
        return done / self.elapsed_s if self.elapsed_s and done else None

    @property
    def left_s(self) -> float | None:
        """The time until the budget is spent at the present rate; None unless it runs."""
        if self.job.state not in (QUEUED, RUNNING) or not self.rate:
            return None
        open_trials = sum(
            max(0, self.job.trials - task.trials_done)
            for task in self.job.tasks
            if task.state == "queued"
        )
        left = open_trials / self.rate
        if self.job.seconds is not None:
            shares = 1 if self.job.kind == MODEL else len(self.job.tasks)
            left = min(left, max(0.0, self.job.seconds * shares - self.work.run_s))
        return left

    def levels(self) -> tuple[Level, ...]:
        """Lines of the curve: default schedule, roofline, libraries of the kernel's race."""
        levels = []
        if self.default_s is not None:
            levels.append(Level(name="default", seconds=self.default_s, kind="default"))
        if self.least_s is not None:
            levels.append(Level(name="roofline", seconds=self.least_s, kind="roofline"))
        return (*levels, *rivals(self.kernel))


def rivals(kernel: Kernel | None) -> tuple[Level, ...]:
    """The libraries of a kernel's race: neither the default nor other candidates."""
    race = {} if kernel is None else kernel.race
    timed = [
        (name, entry["median_s"])
        for name, entry in race.items()
        if isinstance(entry, dict) and entry.get("median_s")
    ]
    own = ("default", "incumbent", "kernel")
    libraries = [
        Level(name=name[:16], seconds=float(m), kind="rival")
        for name, m in timed
        if name not in own and " " not in name
    ]
    return tuple(libraries[:RIVALS])


def load(session: Session, job_id: str, caller: Caller, position: int = 0) -> JobView:
    """One workload of a job.

    Raises NotFound or Problem for a job the caller may not see, and Problem for a
    workload the job does not have.
    """
    job = seen(session, job_id, caller)
    if not job.tasks:
        raise Problem(404, "not_found", f"job {job_id} has no workload: {unread(job)}")
    if not 0 <= position < len(job.tasks):
        raise Problem(
            404,
            "not_found",
            f"job {job_id} has {len(job.tasks)} workloads, numbered from 0; {position} is not one",
        )
    task = job.tasks[position]
    stored_workloads = workloads.get_many(
        session, [each_task.workload for each_task in job.tasks][:1000]
    )
    stored, target = stored_workloads[task.workload], targets.get(session, job.target)
    workload = limits.workload_of(stored.document)
    kernel = kernels.get(session, task.kernel) if task.kernel else None
    return JobView(
        job=job,
        position=position,
        specs=[labels.label(stored_workloads[each_task.workload]) for each_task in job.tasks],
        stored=stored,
        workload=workload,
        target=target,
        kernel=kernel,
        default_s=charts.default_medians(session, [(job_id, position)]).get((job_id, position)),
        least_s=limits.least_s(workload, target, job.threads),
        waiting=runners.waiting(session, [job]).get(job_id),
        work=work_time(session, job),
    )


def unread(job: Job) -> str:
    """Why a job of a model has no workloads."""
    return job.error or (
        "its model was not read" if job.state in FINISHED else "its model is still to be read"
    )


def curve_of(
    session: Session, view: JobView, *, by_time: bool = False, axes: Axes = DEFAULT
) -> tuple[Curve, Expectation | None]:
    """The curve, and the expected gain of further trials."""
    started = view.job.started_at.timestamp() if view.job.started_at else None
    curve, timed = history.curve(
        session,
        view.job.id,
        view.position,
        by_time=by_time,
        levels=view.levels(),
        started=started,
        axes=axes,
    )
    pace = 1.0 / view.rate if view.rate else 0.0
    medians = history.in_order(timed, curve.total)
    return curve, expect(medians, trials=NEXT, seconds_per_trial=pace, floor_s=view.least_s)
