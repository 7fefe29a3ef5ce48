"""Queries about targets: the machine a kernel is for, and its measured limits."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import select, update

from tuner.db.engine import Session
from tuner.db.errors import NotFound
from tuner.db.tables import TargetRow
from tuner.target.document import limits_from_document, limits_to_document
from tuner.target.target import Limits, Target


def remember(session: Session, target: Target) -> str:
    """Stores `target` if it is new, and its limits if it has some; returns its key."""
    document = asdict(target)
    del document["limits"]
    new = {
        "key": target.key,
        "kind": target.kind,
        "name": target.name[:200],
        "document": document,
        "created_at": session.now(),
    }
    session.insert_new(TargetRow, new)
    if target.limits is not None:
        set_limits(session, target.key, target.limits)
    return target.key


def set_limits(session: Session, key: str, limits: Limits) -> None:
    """Stores newly measured limits of a known target."""
    session.execute(
        update(TargetRow)
        .where(TargetRow.key == key)
        .values(limits=limits_to_document(limits), measured_at=session.now())
    )


def get(session: Session, key: str) -> Target:
    row = session.get(TargetRow, key)
    if row is None:
        raise NotFound(f"no target {key!r} is known; GET /v1/targets lists the known ones")
    return _target(row)


def find(session: Session, key: str) -> Target | None:
    row = session.get(TargetRow, key)
    return None if row is None else _target(row)


def list_all(session: Session) -> tuple[Target, ...]:
    """Every target, the oldest first."""
    return tuple(
        _target(row)
        for row in session.scalars(select(TargetRow).order_by(TargetRow.created_at, TargetRow.key))
    )


def _target(row: TargetRow) -> Target:
    document: dict[str, Any] = dict(row.document)
    document["isa"] = tuple(document["isa"])
    limits = None if row.limits is None else limits_from_document(row.limits)
    return Target(**document, limits=limits)
