"""Which waiting job is claimed next, when there is room for one. Pure.

Urgent jobs first; a job whose key has enough running is passed over. A job that needs
other lanes than the running ones, because its kernel has another number of threads, is
not overtaken: the fleet is changed once those have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.db.jobs import Job
from tuner.workers.fleet.policy import PolicyName


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    running_jobs: int  # most at a time
    running_per_key: int = 0  # most of one API key; 0: no bound


def admitted(
    waiting: Sequence[Job],
    running: Sequence[Job],
    quotas: Quotas,
    *,
    policy: PolicyName,
    same_fleet: Callable[[Job, Job], bool],
) -> Job | None:
    """The job to claim; None while there is none or no room. `waiting` are claimable,
    the most urgent first."""
    if len(running) >= quotas.running_jobs:
        return None
    if policy == "srtf":
        waiting = sorted(waiting, key=lambda job: (-job.priority, trials_left(job)))
    held = {job.id for job in running}
    for job in waiting:
        if (
            job.id in held
        ):  # its lease ran out although it runs here: its own heartbeat finds that out
            continue
        of_key = sum(other.owner == job.owner for other in running)
        if quotas.running_per_key and of_key >= quotas.running_per_key:
            continue
        return job if all(same_fleet(job, other) for other in running) else None
    return None


def trials_left(job: Job) -> int:
    """Of the job's budget, over all its workloads that are not done."""
    return sum(
        max(0, job.trials - task.trials_done) for task in job.tasks if task.state == "queued"
    )
