"""Which queued jobs nobody can serve: their target has no runner that was heard of
lately, and what to tell who waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from sqlalchemy import select

from tuner.db import targets
from tuner.db.engine import Session
from tuner.db.jobs import QUEUED, Job
from tuner.db.models import WorkerRow
from tuner.db.workers import ACTIVE
from tuner.target.capability import called, serves
from tuner.target.target import Target

SILENT = timedelta(
    seconds=30
)  # a runner beats every few seconds; one this silent is gone, or its machine is


def waiting(session: Session, found: Sequence[Job]) -> Mapping[str, str]:
    """By id, what each queued job waits for whose target has no living runner. Others
    are not in it."""
    queued = [job for job in found if job.state == QUEUED]
    if not queued:
        return {}
    heard = WorkerRow.heartbeat_at >= session.now() - SILENT
    query = (
        select(WorkerRow.target_key)
        .where(WorkerRow.state == ACTIVE, WorkerRow.target_key.is_not(None), heard)
        .distinct()
    )
    machines = [targets.get(session, str(key)) for key in session.scalars(query)]
    reasons = {}
    for key in {job.target for job in queued}:
        wanted = targets.get(session, key)
        if not any(serves(machine, wanted) for machine in machines):
            reasons[key] = f"waiting for a runner of {called(wanted)}"
    return {job.id: reasons[job.target] for job in queued if job.target in reasons}


def served_keys(session: Session, machine: Target) -> tuple[str, ...]:
    """Keys of the stored targets whose jobs a machine can run."""
    return tuple(one.key for one in targets.list_all(session) if serves(machine, one))
