"""The stored rows of a job."""

from __future__ import annotations

from tuner.db import trials
from tuner.db.engine import Database


def rows(database: Database, job_id: str) -> dict[int, tuple[object, ...]]:
    """Each recorded trial by number, as it was stored."""
    with database.read() as session:
        stored = trials.stored_of_task(session, job_id)
    return {row.trial.number: (row.trial, row.created_at) for row in stored}
