"""Times kernels again after a change of compiler or machine.

Affected kernels are marked stale and still served. A job of kind REVALIDATE, which runs
when nothing else is waiting, races the best few configs of the search against the kernel
and the default schedule. A changed driver or machine is another target, by its
fingerprint; the configs of the previous target are tried there.
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
from tuner.measure.cache import Cache
from tuner.spaces.core.space import Config

DECISIVE = ("apache-tvm", "apache-tvm-ffi")  # versions that decide what code a schedule becomes
FEW = 4  # configs that are timed again, including the kernel's own
IDLE_PRIORITY = -100  # below every request
TASKS = 64  # of a job
SOURCE = "revalidate"  # in a job's settings: key of the target whose kernels are tried


def note_change(session: Session, new: NewWorker) -> str | None:
    """Marks the kernels of a machine's target stale if its compiler changed.

    Called before the machine joins. Returns its previous target if it is another one.
    """
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
    """Queues the jobs that time kernels again on `target`; returns their ids.

    These include kernels of the target that its machine had `before`.
    """
    made: list[str] = []
    for source in (target,) if before is None else (target, before):
        groups: dict[tuple[int, Cache, bool], list[Due]] = {}
        for due in revalidation.due(session, target, source):
            groups.setdefault((due.threads, due.cache, due.prepared), []).append(due)
        for group in groups.values():
            for start in range(0, len(group), TASKS):
                some = group[start : start + TASKS]
                made.append(jobs.create(session, _job(target, source, some))[0].id)
    return tuple(made)


def _job(target: str, source: str, alike: Sequence[Due]) -> NewJob:
    """A job that times kernels again; a kernel that was only prepared stays so."""
    first = alike[0]
    kind = jobs.PREPARE if first.prepared else jobs.REVALIDATE
    settings: Mapping[str, str] = {SOURCE: source}
    return NewJob(
        workloads=tuple(due.workload for due in alike),
        target=target,
        threads=first.threads,
        cache=first.cache,
        trials=1 + FEW,
        priority=IDLE_PRIORITY,
        kind=kind,
        settings=settings,
    )


def best_configs(session: Session, job: Job, task: Task) -> Sequence[Config]:
    """The kernel's own config and the best others of its job, FEW in all.

    None if the kernel is gone.
    """
    kernel = kernels.find_promoted(
        session, task.workload, str(job.settings[SOURCE]), job.threads, cache=job.cache
    )
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
