"""Jobs whose workloads come later, and artifacts that something still refers to, on both databases."""

from __future__ import annotations

from datetime import timedelta

import pytest

from db import artifacts, events, jobs, kernels, leases, targets, tasks, workloads
from db.engine import Database
from db.errors import StaleLease
from tests.database_samples import LIBRARY, sample_kernel, sample_target, sample_workload
from tuner.errors import UsageError

MODEL, OBJECT, EXPORT, LOOSE = ("1" * 64, "2" * 64, "3" * 64, "4" * 64)


def test_a_models_workloads_are_added_once_by_whoever_holds_its_lease(database: Database) -> None:
    with database.write() as session:
        target = targets.remember(session, sample_target())
        keys = [workloads.remember(session, sample_workload(extent), {}) for extent in (4, 8)]
        new = jobs.NewJob(workloads=(), target=target, threads=1, trials=3, kind=jobs.MODEL, settings={"model": MODEL})
        job = jobs.create(session, new)[0]
        assert job.tasks == ()
        first = leases.claim(session, job.id, owner="first")[1]
    with database.write() as session:
        assert [task.workload for task in tasks.add(session, first, [keys[0], keys[0]]).tasks] == [keys[0]]
        assert [(task.position, task.workload) for task in tasks.add(session, first, keys).tasks] == list(enumerate(keys))
        assert [event.kind for event in events.after(session, job.id, 0)] == ["queued", "running", "note", "note"]
    with database.write() as session:
        leases.claim(session, job.id, owner="second", take_over=True)
    with pytest.raises(StaleLease), database.write() as session:
        tasks.add(session, first, keys)


def test_other_jobs_need_workloads(database: Database) -> None:
    with pytest.raises(UsageError), database.write() as session:
        jobs.create(session, jobs.NewJob(workloads=(), target=targets.remember(session, sample_target()), threads=1, trials=3))


def test_what_schedules_and_models_refer_to_is_kept(database: Database) -> None:
    with database.write() as session:
        for digest in (MODEL, OBJECT, EXPORT, LOOSE):
            artifacts.remember(session, sha256=digest, size_bytes=1, kind="library")
        sample = sample_kernel(session)
        names = [name for name in type(sample).__dataclass_fields__ if name != "schedule"]
        schedule = {"object": OBJECT, "export": EXPORT, "module": "…"}
        kernels.promote(session, kernels.NewKernel(schedule=schedule, **{name: getattr(sample, name) for name in names}))
        target = targets.remember(session, sample_target())
        new = jobs.NewJob(workloads=(), target=target, threads=1, trials=3, kind=jobs.MODEL, settings={"model": MODEL})
        jobs.create(session, new)
        assert artifacts.live(session) == {LIBRARY, OBJECT, EXPORT, MODEL}
        assert artifacts.forget_unused(session, session.now() + timedelta(seconds=1)) == (LOOSE,)
