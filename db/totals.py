"""Counts over the whole database, for the service's metrics.

Each is read from an index or a small table, never by a scan of the trials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import func, select

from tuner.db.engine import Session
from tuner.db.jobs import STATES as JOB_STATES
from tuner.db.kernels import IS_PROMOTED
from tuner.db.runs import QUEUED, RUNNING
from tuner.db.tables import JobRow, KernelRow, RegressionRow, RunRow, TaskRow, WorkerRow
from tuner.db.workers import STATES as WORKER_STATES
from tuner.measure.regression import Kind, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counts over the whole database."""

    jobs: Mapping[str, int]  # by state, every state present
    workers: Mapping[str, int]  # by state, every state present
    trials_ok: int
    trials_failed: int
    kernels: int  # promoted
    regressions: Mapping[str, int]  # raised, by kind
    waiting_runs: int  # queued or running


def read(session: Session) -> Totals:
    """The counts now, of as many rows as there are jobs' tasks."""
    jobs = {
        row[0]: row[1]
        for row in session.execute(select(JobRow.state, func.count()).group_by(JobRow.state))
    }
    workers = {
        row[0]: row[1]
        for row in session.execute(select(WorkerRow.state, func.count()).group_by(WorkerRow.state))
    }
    # Each task keeps its own sums, so a million trials cost as many rows as there are tasks.
    done, ok = session.execute(
        select(func.sum(TaskRow.trials_done), func.sum(TaskRow.trials_ok))
    ).one()
    return Totals(
        jobs={state: jobs.get(state, 0) for state in JOB_STATES},
        workers={state: workers.get(state, 0) for state in WORKER_STATES},
        trials_ok=int(ok or 0),
        trials_failed=int(done or 0) - int(ok or 0),
        kernels=session.scalars(
            select(func.count()).select_from(KernelRow).where(IS_PROMOTED)
        ).one(),
        regressions=_regressions(session),
        waiting_runs=waiting_runs(session),
    )


def _regressions(session: Session) -> Mapping[str, int]:
    query = (
        select(RegressionRow.kind, func.count())
        .where(RegressionRow.state == State.RAISED)
        .group_by(RegressionRow.kind)
    )
    counts = {row[0]: row[1] for row in session.execute(query)}
    return {kind.value: counts.get(kind, 0) for kind in Kind}


def waiting_runs(session: Session, owner: str | None = None) -> int:
    """Runs that are queued or under way, of one api key or of all."""
    query = select(func.count()).select_from(RunRow).where(RunRow.state.in_((QUEUED, RUNNING)))
    return session.scalars(query if owner is None else query.where(RunRow.owner == owner)).one()
