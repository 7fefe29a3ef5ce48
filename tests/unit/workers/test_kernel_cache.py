"""Stored kernels that a model falls back on where there is no time to search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.support.database_samples import sample_kernel
from tests.support.search_history import queue
from tuner.db import artifacts, events, jobs, kernels, promotions
from tuner.db.engine import Database, open_database
from tuner.export.artifacts import ArtifactStore
from tuner.workers.jobs.kernel_cache import keep, stored_kernels
from tuner.workers.jobs.progress import Progress, TaskFinished
from tuner.workers.jobs.timeline import versions

SPECS = tuple(f"softmax:M=4,N={n}" for n in (4, 8, 12, 16, 20, 24))


def promote(
    database: Database,
    workload: str,
    target: str,
    store: ArtifactStore,
    *,
    made_by: Mapping[str, str] | None = None,
    lost: bool = False,
) -> str:
    """The id of a new kernel, whose object code may be `lost`."""
    library, code = store.put(f"library {workload}".encode()), f"code {workload}".encode()
    with database.write() as session:
        artifacts.remember(session, sha256=library, size_bytes=3, kind="library")
        new = replace(
            sample_kernel(session),
            workload=workload,
            target=target,
            artifact=library,
            schedule={"object": "ab" * 32 if lost else store.put(code), "symbol": "k"},
            versions=versions() if made_by is None else made_by,
        )
        return promotions.promote(session, new).id


def test_a_verified_kernel_of_these_versions_stays_and_is_said(tmp_path: Path) -> None:
    """Not one of another version, a stale one, or one whose code is lost."""
    database, store = open_database(tmp_path / "tuner.db"), ArtifactStore(tmp_path / "artifacts")
    job, lease = queue(database, *SPECS)
    assert lease is not None
    stale, good, other, lost, tried, _ = (task.workload for task in job.tasks)
    promote(database, stale, job.target, store)
    with database.write() as session:
        kernels.mark_stale(session, job.target, "another compiler")
    kernel = promote(database, good, job.target, store)
    promote(database, other, job.target, store, made_by={**versions(), "tuner": "0.0.1"})
    promote(database, lost, job.target, store, lost=True)
    promote(database, tried, job.target, store)
    left = [replace(task, trials_done=int(task.workload == tried)) for task in job.tasks]
    stored = stored_kernels(database, job, left, store)
    assert {place: each.id for place, each in stored.items()} == {1: kernel}

    seen = list[Progress]()
    keep(database, lease, [(left[1], stored[1])], seen.append)
    assert seen == [TaskFinished(position=1, kernel=kernel, error=None)]
    with database.read() as session:
        tasks = jobs.get(session, job.id).tasks
        notes = [event.data for event in events.after(session, job.id, 0) if event.kind == "note"]
    assert [task.kernel for task in tasks] == [None, kernel, None, None, None, None]
    assert tasks[1].state == "succeeded" and tasks[0].state != "succeeded"
    assert [(note["task"], kernel in note["text"]) for note in notes] == [(1, True)]
    database.close()
