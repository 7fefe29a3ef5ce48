"""Queries about trials: each outcome is committed once, under its number."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import case, func, select, update

from tuner.db.engine import Session
from tuner.db.errors import AlreadyRecorded, NotFound
from tuner.db.leases import Lease, held
from tuner.db.tables import LaneSpanRow, TaskRow, TrialRow
from tuner.db.values import clean_text, config_from_json
from tuner.errors import DatabaseError
from tuner.measure.gpu.resources import Resources
from tuner.measure.outcome import (
    Failed,
    FailureKind,
    Timed,
    Trial,
    conditions_from_document,
    conditions_to_document,
)

OK = "ok"
# Keys in the column of the conditions: resources of a GPU candidate, also of a failed one;
# workspace and machine code in bytes of a timed one for CPUs.
RESOURCES, FOOTPRINT = "resources", "footprint"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrial:
    job_id: str
    position: int  # of its task in the job
    trial: Trial
    predicted: float | None  # the cost model's score before it was measured
    round: int | None
    worker: str | None
    attempts: int  # 1 unless infrastructure failed
    quarantined: bool  # it kept killing workers
    suspect: str | None  # why its timing is in doubt
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    kind: FailureKind
    signature: str
    count: int
    example: int  # number of one such trial
    message: str  # its text


def record(
    session: Session,
    lease: Lease,
    trial: Trial,
    *,
    position: int = 0,
    round: int | None = None,
    predicted: float | None = None,
    worker: str | None = None,
    attempts: int = 1,
    quarantined: bool = False,
) -> None:
    """Stores the outcome of a trial and counts it in its task.

    Raises StaleLease, AlreadyRecorded when this number has an outcome, NotFound for an
    unknown task, DatabaseError for numbers that are not finite. Nothing is written
    then.
    """
    held(session, lease)
    where = {"job_id": lease.job_id, "position": position}
    row = where | {
        "number": trial.number,
        "config": dict(trial.config),
        "build_s": trial.build_s,
        "measure_s": trial.measure_s,
    }
    row |= {
        "round": round,
        "predicted": predicted,
        "worker": worker,
        "attempts": attempts,
        "quarantined": quarantined,
    }
    if session.get(TaskRow, (lease.job_id, position)) is None:
        raise NotFound(f"job {lease.job_id} has no task {position}")
    if not session.insert_new(
        TrialRow, row | _outcome_columns(trial) | {"created_at": session.now()}
    ):
        raise AlreadyRecorded(
            f"trial {trial.number} of job {lease.job_id}, task {position}, has its outcome already"
        )
    _count(session, lease.job_id, position, trial)


def _count(session: Session, job_id: str, position: int, trial: Trial) -> None:
    values: dict[str, Any] = {"trials_done": TaskRow.trials_done + 1}
    if isinstance(trial.outcome, Timed):
        median_s = trial.outcome.median_s
        values["trials_ok"] = TaskRow.trials_ok + 1
        better = TaskRow.best_median_s.is_(None) | (TaskRow.best_median_s > median_s)
        values["best_median_s"] = case((better, median_s), else_=TaskRow.best_median_s)
    session.count_rows(
        update(TaskRow)
        .where(TaskRow.job_id == job_id, TaskRow.position == position)
        .values(**values)
    )


def _outcome_columns(trial: Trial) -> dict[str, Any]:
    outcome = trial.outcome
    resources = {} if trial.resources is None else {RESOURCES: asdict(trial.resources)}
    if isinstance(outcome, Failed):
        message = clean_text(outcome.message)
        columns = {"outcome": outcome.kind.value, "error": message, "signature": signature(message)}
        return columns | ({"conditions": resources} if resources else {})
    numbers = (*outcome.samples_s, outcome.max_rel_error)
    if not outcome.samples_s or not all(map(math.isfinite, numbers)):
        raise DatabaseError(
            f"trial {trial.number} was timed with {numbers}; samples and error must be finite, "
            f"and at least one sample"
        )
    return {
        "outcome": OK,
        "median_s": outcome.median_s,
        "samples_s": list(outcome.samples_s),
        "max_rel_error": outcome.max_rel_error,
        "conditions": conditions_to_document(outcome.conditions)
        | resources
        | _footprint_column(outcome, trial),
        "artifact": outcome.artifact,
    }


def signature(message: str) -> str:
    """A key that failures share if their texts differ only in numbers, addresses and paths.

    16 hex digits of a hash of the rest.
    """
    text = re.sub(r"0x[0-9a-fA-F]+|/[\w./+-]+|\d+(\.\d+)?(e[+-]?\d+)?", "#", message)
    return hashlib.sha256(" ".join(text.split())[:2000].encode()).hexdigest()[:16]


def of_task(session: Session, job_id: str, position: int = 0) -> tuple[Trial, ...]:
    """Every trial of a task by number, for a restarted search."""
    return tuple(stored.trial for stored in stored_of_task(session, job_id, position))


def stored_of_task(session: Session, job_id: str, position: int = 0) -> tuple[StoredTrial, ...]:
    """Every trial of a task by number, with its round, prediction and worker."""
    query = (
        select(TrialRow)
        .where(TrialRow.job_id == job_id, TrialRow.position == position)
        .order_by(TrialRow.number)
    )
    return tuple(stored(row) for row in session.scalars(query))


def get(session: Session, job_id: str, number: int, position: int = 0) -> StoredTrial:
    query = select(TrialRow).where(
        TrialRow.job_id == job_id, TrialRow.position == position, TrialRow.number == number
    )
    row = session.scalars(query).one_or_none()
    if row is None:
        raise NotFound(f"job {job_id} has no trial {number} in task {position}")
    return stored(row)


def numbers(session: Session, job_id: str, position: int = 0) -> frozenset[int]:
    """The recorded numbers of a task."""
    return frozenset(
        session.scalars(
            select(TrialRow.number).where(TrialRow.job_id == job_id, TrialRow.position == position)
        )
    )


def failure_counts(
    session: Session, job_id: str, position: int | None = None
) -> dict[FailureKind, int]:
    """How many trials failed, by kind; of one task or of the whole job."""
    query = select(TrialRow.outcome, func.count()).where(
        TrialRow.job_id == job_id, TrialRow.outcome != OK
    )
    if position is not None:
        query = query.where(TrialRow.position == position)
    counts: Sequence[tuple[str, int]] = [
        (row[0], row[1]) for row in session.execute(query.group_by(TrialRow.outcome))
    ]
    return {FailureKind(kind): count for kind, count in counts}


def failure_groups(session: Session, job_id: str, *, limit: int = 50) -> tuple[FailureGroup, ...]:
    """Failures of a job grouped by `signature`, the most frequent first."""
    count, first = func.count().label("failures"), func.min(TrialRow.id).label("first")
    groups = (
        select(TrialRow.outcome, TrialRow.signature, count, first)
        .where(TrialRow.job_id == job_id, TrialRow.outcome != OK)
        .group_by(TrialRow.outcome, TrialRow.signature)
        .order_by(count.desc(), first)
        .limit(limit)
        .subquery()
    )
    query = (
        select(TrialRow, groups.c.failures)
        .join(groups, TrialRow.id == groups.c.first)
        .order_by(groups.c.failures.desc(), TrialRow.id)
    )
    return tuple(
        FailureGroup(
            kind=FailureKind(row.outcome),
            signature=str(row.signature),
            count=total,
            example=row.number,
            message=str(row.error),
        )
        for row, total in session.execute(query)
    )


def mark_suspect(
    session: Session, worker: str, since: datetime, reason: str, *, machine: str | None = None
) -> int:
    """Marks the timings of a drifting worker since `since`; returns how many.

    The search leaves marked trials out. `machine` restricts them to one machine's lane,
    by its timeline, where several machines have lanes of the same name.
    """
    where = [
        TrialRow.worker == worker,
        TrialRow.created_at >= since,
        TrialRow.outcome == OK,
        TrialRow.suspect.is_(None),
    ]
    if machine is not None:
        here = (
            LaneSpanRow.worker_id == machine,
            LaneSpanRow.lane == worker,
            LaneSpanRow.ended_at >= since,
        )
        where.append(TrialRow.job_id.in_(select(LaneSpanRow.job_id).where(*here)))
    return session.count_rows(update(TrialRow).where(*where).values(suspect=reason))


def stored(row: TrialRow) -> StoredTrial:
    """The record of a row."""
    trial = Trial(
        number=row.number,
        config=config_from_json(row.config),
        outcome=_outcome(row),
        build_s=row.build_s,
        measure_s=row.measure_s,
        resources=_resources(row),
        code_bytes=_footprint(row)[1],
    )
    names = (
        "job_id",
        "position",
        "predicted",
        "round",
        "worker",
        "attempts",
        "quarantined",
        "suspect",
        "created_at",
    )
    return StoredTrial(trial=trial, **{name: getattr(row, name) for name in names})


def _outcome(row: TrialRow) -> Timed | Failed:
    if row.outcome != OK:
        return Failed(kind=FailureKind(row.outcome), message=row.error or "")
    beside = (RESOURCES, FOOTPRINT)
    conditions = {
        name: value for name, value in (row.conditions or {}).items() if name not in beside
    }
    return Timed(
        samples_s=tuple(float(sample) for sample in row.samples_s or ()),
        max_rel_error=row.max_rel_error or 0.0,
        conditions=conditions_from_document(conditions),
        artifact=row.artifact or "",
        workspace_bytes=_footprint(row)[0],
    )


def _footprint_column(outcome: Timed, trial: Trial) -> dict[str, Any]:
    sizes = [outcome.workspace_bytes, trial.code_bytes]
    return {} if sizes == [None, None] else {FOOTPRINT: sizes}


def _footprint(row: TrialRow) -> tuple[int | None, int | None]:
    """Workspace and machine code, in bytes."""
    workspace_bytes, code_bytes = (row.conditions or {}).get(FOOTPRINT) or (None, None)
    return workspace_bytes, code_bytes


def _resources(row: TrialRow) -> Resources | None:
    columns: Mapping[str, int] | None = (row.conditions or {}).get(RESOURCES)
    return None if columns is None else Resources(**columns)
