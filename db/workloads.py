"""Queries about workloads: each is stored once, under its key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select

from tuner.db.engine import Session
from tuner.db.errors import NotFound
from tuner.db.tables import WorkloadRow
from tuner.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWorkload:
    key: str
    op: str | None
    name: str  # of the expression
    spec: str  # as written on the command line, or the notation's kernel name
    numerics: str
    document: Mapping[str, Any]  # what it is rebuilt from
    created_at: datetime


def remember(session: Session, workload: Workload, document: Mapping[str, Any]) -> str:
    """Stores `workload`, if new, with the document it can be rebuilt from; returns its key."""
    session.insert_new(
        WorkloadRow,
        {
            "key": workload.key,
            "op": workload.op,
            "name": workload.expression.name[:200],
            "spec": workload.spec,
            "numerics": workload.numerics,
            "document": dict(document),
            "created_at": session.now(),
        },
    )
    return workload.key


def get(session: Session, key: str) -> StoredWorkload:
    row = session.get(WorkloadRow, key)
    if row is None:
        raise NotFound(f"no workload {key!r} is known; `tuner best` lists those with kernels")
    return _stored(row)


def get_many(session: Session, keys: list[str]) -> dict[str, StoredWorkload]:
    """The stored workloads among `keys`, at most 1000, by key."""
    rows = session.scalars(select(WorkloadRow).where(WorkloadRow.key.in_(keys)))
    return {row.key: _stored(row) for row in rows}


def _stored(row: WorkloadRow) -> StoredWorkload:
    return StoredWorkload(
        key=row.key,
        op=row.op,
        name=row.name,
        spec=row.spec,
        numerics=row.numerics,
        document=row.document,
        created_at=row.created_at,
    )
