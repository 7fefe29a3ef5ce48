"""Jobs whose workloads come later, on both databases."""

from __future__ import annotations

import pytest

from tests.support.database_samples import sample_target, sample_workload
from tuner.db import events, jobs, leases, targets, tasks, workloads
from tuner.db.engine import Database
from tuner.db.errors import StaleLease
from tuner.errors import UsageError

MODEL = "1" * 64


def test_a_models_workloads_are_added_once_by_whoever_holds_its_lease(database: Database) -> None:
    with database.write() as session:
        target = targets.remember(session, sample_target())
        keys = [workloads.remember(session, sample_workload(extent), {}) for extent in (4, 8)]
        new = jobs.NewJob(
            workloads=(),
            target=target,
            threads=1,
            trials=3,
            kind=jobs.MODEL,
            settings={"model": MODEL},
        )
        job = jobs.create(session, new)[0]
        assert job.tasks == ()
        first = leases.claim(session, job.id, owner="first")[1]
    with database.write() as session:
        assert [task.workload for task in tasks.add(session, first, [keys[0], keys[0]]).tasks] == [
            keys[0]
        ]
        assert [
            (task.position, task.workload) for task in tasks.add(session, first, keys).tasks
        ] == list(enumerate(keys))
        assert [event.kind for event in events.after(session, job.id, 0)] == [
            "queued",
            "running",
            "note",
            "note",
        ]
    with database.write() as session:
        leases.claim(session, job.id, owner="second", take_over=True)
    with pytest.raises(StaleLease), database.write() as session:
        tasks.add(session, first, keys)


def test_other_jobs_need_workloads(database: Database) -> None:
    with pytest.raises(UsageError), database.write() as session:
        jobs.create(
            session,
            jobs.NewJob(
                workloads=(), target=targets.remember(session, sample_target()), threads=1, trials=3
            ),
        )
