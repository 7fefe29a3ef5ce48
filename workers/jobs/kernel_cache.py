"""Tasks that need no search, because a kernel exists or their configs are given."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.db import events, jobs, kernels, leases
from tuner.db.engine import Database, Session
from tuner.db.errors import NotFound
from tuner.db.jobs import NEIGHBOUR, PREPARE, REVALIDATE, Job, Task
from tuner.db.kernels import Kernel
from tuner.db.leases import Lease
from tuner.spaces.core.space import Config
from tuner.workers.jobs.revalidation import SOURCE, best_configs


def known_kernel(session: Session, job: Job, task: Task) -> Kernel | None:
    """The existing kernel for a task; None if the task is to be tuned.

    A job with `settings["improve"]` false accepts a kernel that a search found, a job that
    prepares or times kernels accepts any. A kernel marked stale is never accepted.
    """
    prepares = job.kind in (PREPARE, REVALIDATE)
    if not prepares and job.settings.get("improve", True) is not False:
        return None
    if job.goal.of_trials:  # that there is a fastest kernel says nothing of smaller ones
        return None
    kernel = kernels.find_promoted(session, task.workload, job.target, job.threads, cache=job.cache)
    if kernel is None or kernel.stale is not None or not kernel.verified:
        return None
    return kernel if prepares or not is_prepared(session, kernel) else None


def is_prepared(session: Session, kernel: Kernel) -> bool:
    """Whether a job for a lookup made the kernel, without a search."""
    return kernel.job is not None and jobs.kind_of(session, kernel.job) == PREPARE


def unanswered(database: Database, lease: Lease, job: Job) -> list[Task]:
    """The tasks left to do; marks those as done for which a kernel exists."""
    left = []
    for task in job.tasks:
        if task.state == "succeeded":
            continue
        with database.read() as session:
            kernel = known_kernel(session, job, task)
        if kernel is None:
            left.append(task)
            continue
        with database.write("known") as session:
            leases.note_task(session, lease, task.position, state="succeeded", kernel=kernel.id)
            text = f"kernel {kernel.id} of this workload is known; nothing was measured"
            events.append(session, job.id, "note", {"task": task.position, "text": text})
    return left


def is_estimated(job: Job) -> bool:
    """Whether a job prepares a kernel for which no config is given: the estimate's best."""
    return job.kind == PREPARE and NEIGHBOUR not in job.settings and SOURCE not in job.settings


def given_configs(database: Database, job: Job, task: Task) -> Sequence[Config]:
    """Configs that a job without a search tries beside the default schedule.

    For a kernel to be timed again, these are the best recorded ones. A preparing job has
    the config of its neighbour; none if that is gone or has the default schedule.
    """
    if SOURCE in job.settings:
        with database.read() as session:
            return best_configs(session, job, task)
    kernel_id = job.settings.get(NEIGHBOUR)
    if kernel_id is None:
        return ()
    try:
        with database.read() as session:
            config = kernels.get(session, str(kernel_id)).config
    except NotFound:
        return ()
    return (config,) if config else ()
