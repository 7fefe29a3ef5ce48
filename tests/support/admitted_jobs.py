"""Jobs that wait to be admitted."""

from __future__ import annotations

from datetime import UTC, datetime

from tuner.db.jobs import Job, Task
from tuner.measure.objective import FASTEST


def job(
    name: str,
    *,
    owner: str | None = None,
    threads: int = 1,
    trials: int = 100,
    done: int = 0,
    priority: int = 0,
    model: str | None = None,
) -> Job:
    """With a `model`, a digest, the job is of its file."""
    task = Task(
        position=0,
        workload="w",
        state="queued",
        space_size=None,
        trials_done=done,
        trials_ok=done,
        best_median_s=None,
        kernel=None,
        elapsed_s={},
        stopped=None,
        error=None,
    )
    return Job(
        id=name,
        kind="tune" if model is None else "model",
        state="queued",
        target="t",
        threads=threads,
        trials=trials,
        seconds=None,
        strategy="annealing",
        seed=0,
        priority=priority,
        owner=owner,
        cache="warm",
        goal=FASTEST,
        settings={} if model is None else {"model": model},
        error=None,
        last_event=0,
        lease_owner=None,
        lease_expires_at=None,
        created_at=datetime(2026, 11, 20, tzinfo=UTC),
        started_at=None,
        finished_at=None,
        tasks=(task,),
    )
