"""Records with what their keys stand for, read in the same transaction: what routes
answer, and what commands print."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.api import answers, workloads
from tuner.api.schemas import JobAnswer, KernelAnswer
from tuner.db import runners, targets
from tuner.db.engine import Session
from tuner.db.jobs import Job
from tuner.db.kernels import Kernel


def described_jobs(session: Session, found: Sequence[Job]) -> list[JobAnswer]:
    stored = workloads.stored(session, [task.workload for job in found for task in job.tasks])
    known = {key: targets.get(session, key) for key in {job.target for job in found}}
    waiting = runners.waiting(session, found)
    return [answers.job(job, stored, known, waiting=waiting.get(job.id)) for job in found]


def described_kernels(session: Session, found: Sequence[Kernel]) -> list[KernelAnswer]:
    stored = workloads.stored(session, [kernel.workload for kernel in found])
    named = {key: answers.workload(workload) for key, workload in stored.items()}
    known = {key: targets.get(session, key) for key in {kernel.target for kernel in found}}
    return [answers.kernel(kernel, named, known) for kernel in found]
