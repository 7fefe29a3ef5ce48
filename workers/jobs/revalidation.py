"""What a change of compiler or machine does to kernels: they are marked, and go on
being served until they are timed again.

The best few configs of the search that found a kernel are raced against it and the
default schedule before anything is searched anew: a job of kind REVALIDATE, which runs
when nothing else is waiting. A changed driver or machine is another target, by its
fingerprint; what was found for the one before is tried there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.db import jobs, kernels, revalidation, trial_pages, workers
from tuner.db.engine import Session
from tuner.db.errors import NotFound
from tuner.db.jobs import Job, NewJob, Task
from tuner.db.revalidation import Due
from tuner.db.trial_pages import TrialFilter
from tuner.db.workers import NewWorker
from tuner.spaces.core.space import Config

DECISIVE = ("apache-tvm", "apache-tvm-ffi")  # versions that decide what code a schedule becomes
FEW = 4  # configs that are timed again, the kernel's own among them
IDLE_PRIORITY = -100  # below every request
TASKS = 64  # of a job
SOURCE = "revalidate"  # in a job's settings: key of the target whose kernels are tried


def note_change(session: Session, new: NewWorker) -> str | None:
    """Before a machine joins: marks its target's kernels where its compiler changed.
    Gives the target it had, if another."""
    try:
        before = workers.get(session, new.id)
    except NotFound:
        return None
    changed = [
        f"{name} was {before.versions[name]}, is {new.versions.get(name, 'gone')}"
        for name in DECISIVE
        if name in before.versions and before.versions[name] != new.versions.get(name)
    ]
    if changed and new.target is not None:
        kernels.mark_stale(session, new.target, "; ".join(changed))
    return before.target if before.target != new.target else None


def queue(session: Session, target: str, before: str | None) -> tuple[str, ...]:
    """Queues what is to be timed again on `target`, also from the target its machine
    had `before`; the jobs' ids."""
    made: list[str] = []
    for source in (target,) if before is None else (target, before):
        groups: dict[tuple[int, bool], list[Due]] = {}
        for due in revalidation.due(session, target, source):
            groups.setdefault((due.threads, due.prepared), []).append(due)
        for (threads, prepared), group in groups.items():
            for start in range(0, len(group), TASKS):
                some = tuple(due.workload for due in group[start : start + TASKS])
                made.append(
                    jobs.create(
                        session, _job(target, source, some, threads=threads, prepared=prepared)
                    )[0].id
                )
    return tuple(made)


def _job(
    target: str, source: str, workloads: tuple[str, ...], *, threads: int, prepared: bool
) -> NewJob:
    """A kernel that was only prepared stays one."""
    kind = jobs.PREPARE if prepared else jobs.REVALIDATE
    settings: Mapping[str, str] = {SOURCE: source}
    return NewJob(
        workloads=workloads,
        target=target,
        threads=threads,
        trials=1 + FEW,
        priority=IDLE_PRIORITY,
        kind=kind,
        settings=settings,
    )


def best_configs(session: Session, job: Job, task: Task) -> Sequence[Config]:
    """The kernel's own config and the best others of the job that found it, FEW in all;
    none where the kernel has gone."""
    kernel = kernels.find_promoted(session, task.workload, str(job.settings[SOURCE]), job.threads)
    if kernel is None:
        return ()
    configs = [kernel.config] if kernel.config else []
    if kernel.job is not None:
        of_workload = [
            other.position
            for other in jobs.get(session, kernel.job).tasks
            if other.workload == task.workload
        ]
        for position in of_workload:
            where = TrialFilter(outcome=("ok",), position=position)
            best = trial_pages.list_page(
                session, kernel.job, where=where, sort="median_s", limit=2 * FEW
            )
            configs += [
                stored.trial.config
                for stored in best.items
                if stored.trial.config and stored.trial.config not in configs
            ]
    return configs[:FEW]
