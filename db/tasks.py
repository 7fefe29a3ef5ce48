"""What a job learns as it runs: the workloads of a model, the verdict on a foreign kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import func, insert, select

from tuner.db import events
from tuner.db.engine import Session
from tuner.db.errors import NotFound
from tuner.db.jobs import QUEUED, Job, get, locked_row
from tuner.db.leases import Lease, held
from tuner.db.tables import TaskRow

# Settings of a model's job: the digest of its file, the shapes that the file leaves open,
# the digests of its description and of its library's archive, the numerics and the error
# that are allowed, and how the library was measured.
MODEL, SHAPES, DESCRIPTION, LIBRARY = "model", "shapes", "description", "library"
NUMERICS, MAX_ERROR, MEASUREMENT = "numerics", "max_error", "measurement"
SPARE_S = "spare_s"  # seconds behind the job that its command leaves out where the job is late
# Settings of a job of kind JUDGE: the digest of its source, of CUDA C++ the dimensions of its
# launch, and what was said of it.
SOURCE, LAUNCH, VERDICT = "source", "launch", "verdict"


def add(
    session: Session, lease: Lease, workloads: Sequence[str], *, description: str | None = None
) -> Job:
    """Adds a task for each stored workload the job does not have yet, with one event.

    `description` is the digest of the model's, which is remembered. Raises StaleLease.
    """
    held(session, lease)
    if description is not None:
        _note(session, lease, {DESCRIPTION: description})
    here = TaskRow.job_id == lease.job_id
    present = set(session.scalars(select(TaskRow.workload_key).where(here)))
    fresh = [key for key in dict.fromkeys(workloads) if key not in present]
    first = session.scalars(
        select(func.coalesce(func.max(TaskRow.position) + 1, 0)).where(here)
    ).one()
    rows = [
        {
            "job_id": lease.job_id,
            "position": first + place,
            "workload_key": key,
            "state": QUEUED,
            "trials_done": 0,
            "trials_ok": 0,
            "elapsed": {},
        }
        for place, key in enumerate(fresh)
    ]
    if rows:
        session.execute(insert(TaskRow), rows)
        events.append(
            session, lease.job_id, "note", {"text": f"{len(rows)} workloads found in the model"}
        )
    return get(session, lease.job_id)


def elapsed_s(session: Session, job_id: str, position: int) -> Mapping[str, float]:
    """Seconds that a task of a job has had so far: total, search, build, measure. Raises
    NotFound."""
    query = select(TaskRow.elapsed).where(TaskRow.job_id == job_id, TaskRow.position == position)
    elapsed = session.scalars(query).one_or_none()
    if elapsed is None:
        raise NotFound(f"job {job_id} has no task {position}")
    return {name: float(value) for name, value in elapsed.items()}


def note_library(
    session: Session,
    lease: Lease,
    digest: str,
    *,
    description: str,
    measurement: Mapping[str, Any],
) -> None:
    """Records the archive of the whole model's library and its figures, with an event.

    `description` is the digest of what the library computes. Archive and description must
    be stored and remembered before. Raises StaleLease.
    """
    held(session, lease)
    _note(
        session,
        lease,
        {LIBRARY: digest, DESCRIPTION: description, MEASUREMENT: dict(measurement)},
    )
    events.append(session, lease.job_id, "note", {"text": "the model's library is ready"})


def note_verdict(session: Session, lease: Lease, verdict: Mapping[str, Any]) -> None:
    """Records the verdict on the job's source, with an event of that kind. Raises StaleLease."""
    held(session, lease)
    _note(session, lease, {VERDICT: dict(verdict)})
    events.append(session, lease.job_id, "verdict", dict(verdict))


def _note(session: Session, lease: Lease, settings: Mapping[str, Any]) -> None:
    row = locked_row(session, lease.job_id)
    row.settings = {**row.settings, **settings}
    session.flush()
