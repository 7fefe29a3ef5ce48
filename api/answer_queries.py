"""Answers for records together with the records they refer to, read in one transaction.

Shared by the routes and the commands of the local back end.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuner.api import answers, workloads
from tuner.api.schemas import JobAnswer, KernelAnswer, StationAnswer, WorkerAnswer
from tuner.api.work_time import work_time
from tuner.db import lanes, runners, targets, workers
from tuner.db.engine import Session
from tuner.db.jobs import Job
from tuner.db.kernels import Kernel


def job_answers(session: Session, records: Sequence[Job]) -> list[JobAnswer]:
    """Answers for jobs."""
    stored = workloads.stored(session, [task.workload for job in records for task in job.tasks])
    stored_targets = {key: targets.get(session, key) for key in {job.target for job in records}}
    waiting = runners.waiting(session, records)
    return [
        answers.job(
            job,
            stored,
            stored_targets,
            waiting=waiting.get(job.id),
            elapsed_s=work_time(session, job).total_s,
        )
        for job in records
    ]


def kernel_answers(session: Session, records: Sequence[Kernel]) -> list[KernelAnswer]:
    """Answers for kernels."""
    stored = workloads.stored(session, [kernel.workload for kernel in records])
    named = {key: answers.workload(workload) for key, workload in stored.items()}
    stored_targets = {
        key: targets.get(session, key) for key in {kernel.target for kernel in records}
    }
    return [answers.kernel(kernel, named, stored_targets) for kernel in records]


def worker_answers(session: Session) -> list[WorkerAnswer]:
    """Answers for all workers, with today's activity of their lanes and builders.

    Counts seconds by kind of activity since midnight UTC.
    """
    now = session.now()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    seconds: dict[str, dict[str, dict[str, float]]] = {}
    for spent in lanes.activity(session, since=midnight, until=now):
        seconds.setdefault(spent.worker, {}).setdefault(spent.lane, {})[spent.kind] = spent.seconds
    machines = [answers.worker(worker, now) for worker in workers.list_all(session)]
    return [
        worker.model_copy(update={"today": _stations(seconds.get(worker.id, {}))})
        for worker in machines
    ]


def _stations(seconds: dict[str, dict[str, float]]) -> list[StationAnswer]:
    return [
        StationAnswer(
            name=name,
            builds="build" in kinds,
            seconds={kind: round(kinds.get(kind, 0.0), 3) for kind in lanes.KINDS},
        )
        for name, kinds in sorted(seconds.items())
    ]
