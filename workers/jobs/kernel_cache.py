"""Tasks that need no search, because a kernel exists or their configs are given."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tuner.db import events, jobs, kernels, leases
from tuner.db.engine import Database, Session
from tuner.db.errors import NotFound
from tuner.db.jobs import NEIGHBOUR, PREPARE, REVALIDATE, Job, Task
from tuner.db.kernels import Kernel
from tuner.db.leases import Lease
from tuner.export.artifacts import ArtifactCorrupt, ArtifactMissing, ArtifactStore
from tuner.spaces.core.space import Config
from tuner.workers.jobs.progress import Observer, TaskFinished
from tuner.workers.jobs.revalidation import SOURCE, best_configs
from tuner.workers.jobs.timeline import versions


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
    kernel = _verified(session, job, task)
    if kernel is None:
        return None
    return kernel if prepares or not is_prepared(session, kernel) else None


def _verified(session: Session, job: Job, task: Task) -> Kernel | None:
    """The promoted kernel of a task, which is verified and not stale."""
    kernel = kernels.find_promoted(session, task.workload, job.target, job.threads, cache=job.cache)
    if kernel is None or kernel.stale is not None or not kernel.verified:
        return None
    return kernel


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
        _answer(database, lease, task, kernel)
    return left


def keep(
    database: Database, lease: Lease, kept: Sequence[tuple[Task, Kernel]], observer: Observer
) -> None:
    """Ends tasks of a model with kernels that are stored."""
    for task, kernel in kept:
        _answer(database, lease, task, kernel)
        observer(TaskFinished(position=task.position, kernel=kernel.id, error=None))


def _answer(database: Database, lease: Lease, task: Task, kernel: Kernel) -> None:
    """Marks a task as done by a kernel that exists."""
    with database.write("known") as session:
        leases.note_task(session, lease, task.position, state="succeeded", kernel=kernel.id)
        text = f"kernel {kernel.id} of this workload is known; nothing was measured"
        events.append(session, lease.job_id, "note", {"task": task.position, "text": text})


def stored_kernels(
    database: Database, job: Job, left: Sequence[Task], store: ArtifactStore
) -> dict[int, Kernel]:
    """The kernels that tasks of a model fall back on without a trial, by the place in `left`.

    They were verified by the same versions of all that builds and checks kernels, and the
    store still has them.
    """
    stored, current = dict[int, Kernel](), versions()
    with database.read() as session:
        for place, task in enumerate(left):
            kernel = None if task.trials_done else _verified(session, job, task)
            if kernel is None or kernel.versions != current:
                continue
            with suppress(ArtifactMissing, ArtifactCorrupt):
                store.verify(kernel.artifact)
                store.verify(kernels.schedule(session, kernel.id)["object"])
                stored[place] = kernel
    return stored


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
