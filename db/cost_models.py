"""Queries about trained cost models, per target and version of the features.

A later job's search starts from the latest one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import undefer

from tuner.db.engine import Session
from tuner.db.tables import CostModelRow
from tuner.db.values import plain

KEEP = 3  # models per target and feature version


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    target: str  # key
    feature_version: int
    blob: bytes  # as the cost model saved it: JSON of costs, or XGBoost's UBJ
    trained_on: int  # trials
    metrics: Mapping[str, Any]
    created_at: datetime


def save(
    session: Session,
    *,
    target: str,
    feature_version: int,
    blob: bytes,
    trained_on: int,
    metrics: Mapping[str, Any] | None = None,
) -> None:
    """Stores a model and drops all but the last few of its target and feature version."""
    row = CostModelRow(
        target_key=target, feature_version=feature_version, blob=blob, trained_on=trained_on
    )
    row.metrics, row.created_at = plain(metrics or {}), session.now()
    session.add(row)
    session.flush()
    same = (CostModelRow.target_key == target, CostModelRow.feature_version == feature_version)
    kept = session.scalars(
        select(CostModelRow.id).where(*same).order_by(CostModelRow.id.desc()).limit(KEEP)
    ).all()
    session.count_rows(delete(CostModelRow).where(*same, CostModelRow.id < min(kept)))


def latest(session: Session, target: str, feature_version: int) -> CostModel | None:
    """The model trained last for a target, if there is one for these features."""
    same = (CostModelRow.target_key == target, CostModelRow.feature_version == feature_version)
    query = (
        select(CostModelRow)
        .where(*same)
        .order_by(CostModelRow.id.desc())
        .limit(1)
        .options(undefer(CostModelRow.blob))
    )
    row = session.scalars(query).one_or_none()
    if row is None:
        return None
    return CostModel(
        target=row.target_key,
        feature_version=row.feature_version,
        blob=row.blob,
        trained_on=row.trained_on,
        metrics=row.metrics,
        created_at=row.created_at,
    )
