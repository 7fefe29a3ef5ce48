"""What happens to a job, on both databases: its states and events, cancelling and
resuming, lists, idempotency."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy.exc import DBAPIError

from tests.contracts.together import together
from tests.support.database_samples import (
    ManualClock,
    add_claimed,
    add_job,
    queue_job,
    sample_target,
    sample_workload,
)
from tuner.db import events, jobs, kernels, leases, targets, trials, workloads
from tuner.db.engine import Database
from tuner.db.errors import IdempotencyConflict, IllegalTransition, NotFound
from tuner.errors import DatabaseError, UsageError


def test_a_failed_block_writes_nothing(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.write() as session:
        queue_job(session)
        1 / 0  # noqa: B018 - the failure is the point
    with database.read() as session:
        assert jobs.list_page(session).items == ()


def test_reading_transactions_cannot_write(database: Database) -> None:
    with pytest.raises((DatabaseError, DBAPIError)), database.read() as session:
        queue_job(session)


def test_workloads_and_targets_come_back(database: Database) -> None:
    with database.write() as session:
        for _ in range(2):
            key = workloads.remember(session, sample_workload(), {"text": "…\x00", "n": [1, 2.5]})
            targets.remember(session, sample_target())
    with database.read() as session:
        assert workloads.get(session, key).document == {"text": "…\ufffd", "n": [1, 2.5]}
        assert targets.list_all(session) == (sample_target(),)
        with pytest.raises(NotFound, match="no workload"):
            workloads.get(session, "0" * 64)


def test_job_runs_through_its_states_with_events(database: Database) -> None:
    job_id = add_job(database, 8, 9)
    with database.write() as session:
        claimed = leases.claim_next(session, owner="a")
        assert claimed is not None
        job, lease = claimed
        assert (job.id, job.state, job.lease_owner) == (job_id, jobs.RUNNING, "a")
        assert leases.claim_next(session, owner="b") is None
        leases.note_task(
            session,
            lease,
            1,
            state="succeeded",
            space_size=10**30,
            elapsed_s={"total": 2.5},
            stopped="target",
        )
        leases.note_task(session, lease, 1, elapsed_s={"total": 2.5})
        done = leases.finish(session, lease, jobs.SUCCEEDED)
    task = done.tasks[1]
    assert (done.state, done.lease_owner, task.space_size, task.elapsed_s) == (
        "succeeded",
        None,
        10**30,
        {"total": 2.5},
    )
    assert (task.stopped, done.tasks[0].stopped) == ("target", None)
    assert done.finished_at is not None
    with database.read() as session:
        assert [event.kind for event in events.after(session, job_id, 0)] == [
            "queued",
            "running",
            "succeeded",
        ]
        assert [event.sequence for event in events.after(session, job_id, 1)] == [2, 3]
        assert events.latest(session, [job_id]) == {job_id: 3}


def test_cancel_and_resume(database: Database, clock: ManualClock) -> None:
    queued, lease = add_job(database), add_claimed(database)
    with database.write() as session:
        assert jobs.request_cancel(session, queued).state == jobs.CANCELLED
        assert jobs.request_cancel(session, lease.job_id).state == jobs.CANCELLING
        assert leases.renew(session, lease)[1]
        assert leases.release(session, lease).state == jobs.CANCELLED
        assert jobs.resume(session, lease.job_id, trials=99).trials == 99
        assert jobs.get(session, lease.job_id).state == jobs.QUEUED
        _, again = leases.claim(session, lease.job_id, owner="second")
        leases.finish(session, again, jobs.SUCCEEDED)
    for call in (jobs.resume, jobs.request_cancel):
        with pytest.raises(IllegalTransition, match="succeeded"), database.write() as session:
            call(session, lease.job_id)


def test_failed_jobs_carry_their_error(database: Database) -> None:
    lease = add_claimed(database)
    with pytest.raises(IllegalTransition, match="needs error text"), database.write() as session:
        leases.finish(session, lease, jobs.FAILED)
    with database.write() as session:
        assert leases.finish(session, lease, jobs.FAILED, error="no\x00pe").error == "no\ufffdpe"


def test_jobs_are_listed_newest_first_under_inserts(database: Database, clock: ManualClock) -> None:
    ids = []
    for number in range(5):
        ids.append(add_job(database, 8 + number % 2, owner="k1" if number % 2 else None))
        clock.advance(1)
    with database.read() as session:
        first = jobs.list_page(session, limit=2)
    add_job(database)
    with database.read() as session:
        second = jobs.list_page(session, limit=2, cursor=first.next)
        third = jobs.list_page(session, limit=2, cursor=second.next)
        assert [job.id for page in (first, second, third) for job in page.items] == ids[
            ::-1
        ] and third.next is None
        assert [job.id for job in jobs.list_page(session, owner="k1").items] == [ids[3], ids[1]]
        assert len(jobs.list_page(session, workload=sample_workload(9).key).items) == 2
        assert jobs.list_page(session, state=["failed"]).items == ()
        assert jobs.count(session, owner="k1") == 2
        for bad in ("!", "WyJqb2JzIl0", "WyJraW5kIiwieCJd"):
            with pytest.raises(UsageError, match="cursor"):
                jobs.list_page(session, cursor=bad)
        with pytest.raises(UsageError, match="limit is 1 to 1000"):
            jobs.list_page(session, limit=0)


def test_idempotency(database: Database, clock: ManualClock) -> None:
    add_job(database)
    new = jobs.NewJob(
        workloads=(sample_workload().key,), target=sample_target().key, threads=1, trials=5
    )
    once = jobs.Idempotency(key="k", digest="d" * 64, owner="me")
    created_jobs: list[tuple[str, bool]] = []

    def post(_index: int) -> None:
        with database.write() as session:
            job, created = jobs.create(session, new, idempotency=once)
            created_jobs.append((job.id, created))

    together(4, post)
    assert (
        len({job for job, _ in created_jobs}) == 1
        and sum(created for _, created in created_jobs) == 1
    )
    with pytest.raises(IdempotencyConflict, match="'k'"), database.write() as session:
        jobs.create(
            session, new, idempotency=jobs.Idempotency(key="k", digest="e" * 64, owner="me")
        )
    clock.advance(25 * 3600)
    with database.write() as session:
        assert jobs.create(session, new, idempotency=once)[1]


def test_odd_values_are_refused_not_crashed_on(database: Database) -> None:
    add_job(database)
    new = jobs.NewJob(
        workloads=(sample_workload().key,), target=sample_target().key, threads=1, trials=5
    )
    for name, value in (("threads", 0), ("trials", -1), ("priority", 2**31), ("seed", 2**63)):
        with (
            pytest.raises(UsageError, match=f"{name} is {value}; it must be from"),
            database.write() as session,
        ):
            jobs.create(session, replace(new, **{name: value}))  # type: ignore[arg-type] # the name varies
    for key in ("", "k" * 201):
        with pytest.raises(UsageError, match="it has 1 to 200"), database.write() as session:
            jobs.create(session, new, idempotency=jobs.Idempotency(key=key, digest="d" * 64))
    with database.read() as session, pytest.raises(UsageError):
        trials.get(session, "j", 2**70)
    for odd in ("\x00", "\ud800", "j" * 10_000):
        with pytest.raises(UsageError), database.read() as session:  # NotFound is one too
            jobs.get(session, odd)
        with pytest.raises(UsageError), database.read() as session:
            kernels.get(session, odd)
    with database.read() as session:
        assert len(jobs.list_page(session).items) == 1
