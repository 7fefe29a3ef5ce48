"""Queued jobs whose target has no living runner, and what they wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import select

from tuner.db import targets
from tuner.db.engine import Session
from tuner.db.jobs import QUEUED, Job
from tuner.db.tables import WorkerRow
from tuner.db.workers import ACTIVE, is_alive
from tuner.target.capability import called, serves
from tuner.target.target import Target

# Label of a machine with an orchestrator, which answers runs of what its devices serve. A
# machine that joined a cluster only measures.
ANSWERS_RUNS = "answers_runs"


def waiting(session: Session, listed: Sequence[Job]) -> Mapping[str, str]:
    """The reason, by job id, of each queued job whose target has no living runner."""
    queued = [job for job in listed if job.state == QUEUED]
    if not queued:
        return {}
    query = (
        select(WorkerRow.target_key)
        .where(WorkerRow.state == ACTIVE, WorkerRow.target_key.is_not(None), is_alive(session))
        .distinct()
    )
    machines = [targets.get(session, str(key)) for key in session.scalars(query)]
    reasons = {}
    for key in {job.target for job in queued}:
        target = targets.get(session, key)
        if not any(serves(machine, target) for machine in machines):
            reasons[key] = f"waiting for a runner of {called(target)}"
    return {job.id: reasons[job.target] for job in queued if job.target in reasons}


def has_runner(session: Session, target: str) -> bool:
    """Whether a living machine has the target of this key."""
    query = select(WorkerRow.id).where(
        WorkerRow.state == ACTIVE, WorkerRow.target_key == target, is_alive(session)
    )
    return session.scalars(query.limit(1)).first() is not None


def answers_runs(session: Session, target: Target) -> bool:
    """Whether a living machine runs kernels for the target on callers' arrays."""
    query = select(WorkerRow.target_key, WorkerRow.labels).where(
        WorkerRow.state == ACTIVE, WorkerRow.target_key.is_not(None), is_alive(session)
    )
    machines = [key for key, labels in session.execute(query) if ANSWERS_RUNS in labels]
    return any(serves(targets.get(session, str(key)), target) for key in dict.fromkeys(machines))


def served_keys(session: Session, machine: Target) -> tuple[str, ...]:
    """Keys of the stored targets whose jobs a machine can run."""
    return tuple(target.key for target in targets.list_all(session) if serves(machine, target))
