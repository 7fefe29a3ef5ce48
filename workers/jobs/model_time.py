"""The time of a model's job: its plan, and what is said where it does not suffice."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from tuner.db import events, tasks
from tuner.db.engine import Database
from tuner.db.jobs import Job, Task, spent_s
from tuner.models.tuning.task_scheduler import KernelProgress
from tuner.models.tuning.time_plan import TimePlan
from tuner.workers.jobs.progress import ModelLate, Observer


def plan_of(
    job: Job,
    left: Sequence[Task],
    dispensable: Collection[str],
    stored: Collection[int],
    *,
    begin_s: float,
) -> TimePlan:
    """The plan of a job, for the tasks `left`, in a run that began at `begin_s` of the monotonic
    clock. What earlier runs have had of its seconds is gone, and shows the pace.

    `dispensable`: keys of the workloads that the model can do without; `stored`: places of
    the tasks that have a verified kernel.
    """
    optional = (place for place, task in enumerate(left) if task.workload in dispensable)
    plan = TimePlan(
        seconds=job.seconds,
        kernels=len(left),
        clock=time.monotonic,
        begin_s=begin_s - sum(spent_s(job)),
        optional=frozenset(optional),
        stored=frozenset(stored),
        spare_s=float(job.settings.get(tasks.SPARE_S, 0.0)),
    )
    for place, task in enumerate(left):
        if task.trials_done:
            plan.searched(place, task.trials_done, task.elapsed_s.get("total", 0.0))
    return plan


def say_late(
    database: Database,
    job: Job,
    subjects: Sequence[KernelProgress],
    plan: TimePlan,
    observer: Observer,
) -> None:
    """Says, once rounds are over, that kernels without one make the job late, or stay as they
    are stored."""
    places = [place for place, subject in enumerate(subjects) if not subject.optional]
    kept = sum(map(plan.keeps, places))
    unsearched = sum(subjects[place].is_fresh and not plan.keeps(place) for place in places)
    plan.said_late_s = late_s = plan.late_s()
    if kept or (unsearched and late_s > 0):
        late = ModelLate(kernels=len(subjects), unsearched=unsearched, kept=kept, seconds=late_s)
        _say(database, job, late, observer)


def say_late_again(database: Database, job: Job, plan: TimePlan, observer: Observer) -> None:
    """Says it again after a promotion, where promotions take longer or less than was expected."""
    late_s = plan.changed_late_s()
    if late_s is not None:
        late = ModelLate(kernels=plan.kernels, seconds=late_s, before_s=plan.said_late_s)
        plan.said_late_s = late_s
        _say(database, job, late, observer)


def _say(database: Database, job: Job, late: ModelLate, observer: Observer) -> None:
    with database.write("note") as session:
        events.append(session, job.id, "note", {"text": late.text})
    observer(late)
