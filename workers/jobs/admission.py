"""Chooses the waiting job that is claimed next. Pure.

Urgent jobs go first; a job whose API key has enough running jobs is passed over. A job
that needs other lanes than the running ones, for kernels of another number of threads, is
not overtaken: the fleet changes once the running jobs have ended. A model's job waits while
an equal one runs, whose kernels it will take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.db.jobs import Job
from tuner.workers.fleet.policy import PolicyName
from tuner.workers.jobs.equal_jobs import are_equal


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Limits on jobs that run at a time."""

    running_jobs: int
    running_per_key: int = 0  # of one API key; 0: no limit


def admitted(
    waiting: Sequence[Job],
    running: Sequence[Job],
    quotas: Quotas,
    *,
    policy: PolicyName,
    same_fleet: Callable[[Job, Job], bool],
) -> Job | None:
    """The job to claim; None if there is none or no room.

    `waiting` are claimable jobs, the most urgent first.
    """
    if len(running) >= quotas.running_jobs:
        return None
    if policy == "srtf":
        waiting = sorted(waiting, key=lambda job: (-job.priority, trials_left(job)))
    held = {job.id for job in running}
    for job in waiting:
        # Its lease ran out although it runs here, which its own heartbeat notices.
        if job.id in held:
            continue
        of_key = sum(other.owner == job.owner for other in running)
        if quotas.running_per_key and of_key >= quotas.running_per_key:
            continue
        if any(are_equal(job, other) for other in running):
            continue
        return job if all(same_fleet(job, other) for other in running) else None
    return None


def trials_left(job: Job) -> int:
    """Trials left in the job's budget, over all its unfinished workloads."""
    return sum(
        max(0, job.trials - task.trials_done) for task in job.tasks if task.state == "queued"
    )
