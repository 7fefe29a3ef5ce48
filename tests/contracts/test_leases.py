"""Who works on a job, on both databases: what can be claimed, once, and that whoever
lost a lease writes nothing more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.contracts.together import together
from tests.support.database_samples import (
    ManualClock,
    add_claimed,
    add_job,
    kernel_run,
    sample_kernel,
    sample_target,
    timed,
)
from tuner.db import artifacts, jobs, leases, promotions, runs, targets, trials
from tuner.db.engine import Database
from tuner.db.errors import LeaseHeld, NotFound, StaleLease
from tuner.db.runs import Runnable

LEASE = timedelta(seconds=10)


def waiting(database: Database, target: str = sample_target().key) -> list[str]:
    with database.read() as session:
        return [job.id for job in leases.waiting(session, targets=[target])]


def test_urgent_jobs_come_first_then_older_ones(database: Database, clock: ManualClock) -> None:
    ids = []
    for priority in (0, 5, 0, 5):
        ids.append(add_job(database, priority=priority))
        clock.advance(1)
    in_order = [ids[1], ids[3], ids[0], ids[2]]
    assert waiting(database) == in_order and waiting(database, "another machine") == []
    with database.write() as session:
        claimed = [leases.claim_next(session, owner="a") for _ in range(5)]
    assert [entry and entry[0].id for entry in claimed] == [*in_order, None]
    assert waiting(database) == []


def test_claims_can_be_kept_to_targets(database: Database) -> None:
    add_job(database)
    with database.write() as session:
        assert leases.claim_next(session, owner="a", targets=["f" * 64]) is None
        assert leases.claim_next(session, owner="a", targets=[sample_target().key]) is not None


def test_a_held_job_waits_again_once_its_lease_ran_out(
    database: Database, clock: ManualClock
) -> None:
    held = add_claimed(database)
    assert waiting(database) == []
    clock.advance(leases.DEFAULT_LEASE.total_seconds() + 1)
    assert waiting(database) == [held.job_id]


def test_concurrent_claims_never_share_a_job(database: Database) -> None:
    ids = {add_job(database) for _ in range(12)}
    claimed: list[str] = []

    def claim(index: int) -> None:
        while True:
            with database.write() as session:
                claim = leases.claim_next(session, owner=f"o{index}")
            if claim is None:
                return
            claimed.append(claim[0].id)

    together(4, claim)
    assert sorted(claimed) == sorted(ids)


def test_stale_fencing_is_refused_everywhere(database: Database, clock: ManualClock) -> None:
    old = add_claimed(database)
    clock.advance(31)
    with database.write() as session:
        claim = leases.claim_next(session, owner="second")
        assert claim is not None and claim[1].fence > old.fence
    new = claim[1]
    writes: list[Callable[..., object]] = [
        lambda session: trials.record(session, old, timed(0)),
        lambda session: leases.renew(session, old),
        lambda session: leases.release(session, old),
        lambda session: leases.finish(session, old, jobs.SUCCEEDED),
        lambda session: leases.note_task(session, old, 0, state="failed"),
        lambda session: promotions.promote(session, sample_kernel(session), lease=old),
    ]
    for write in writes:
        with pytest.raises(StaleLease, match="held by second"), database.write() as session:
            write(session)
    with database.write() as session:
        trials.record(session, new, timed(0))
        leases.finish(session, new, jobs.SUCCEEDED)
    with pytest.raises(StaleLease, match="held by nobody"), database.write() as session:
        trials.record(session, new, timed(1))


def test_lease_that_ran_out_but_was_not_taken_still_writes(
    database: Database, clock: ManualClock
) -> None:
    lease = add_claimed(database)
    clock.advance(3600)
    with database.write() as session:
        trials.record(session, lease, timed(0))
        renewed, cancelling = leases.renew(session, lease, lifetime=timedelta(seconds=60))
        assert renewed.expires_at == clock() + timedelta(seconds=60) and not cancelling


def test_claiming_a_held_job_names_its_holder(database: Database) -> None:
    lease = add_claimed(database)
    with pytest.raises(LeaseHeld, match="tuned by first until 2026-"), database.write() as session:
        leases.claim(session, lease.job_id, owner="second")
    with database.write() as session:
        job, newer = leases.claim(session, lease.job_id, owner="second", take_over=True)
    assert job.lease_owner == "second" and newer.fence > lease.fence


def test_cancelling_job_of_a_dead_owner_is_settled(database: Database, clock: ManualClock) -> None:
    expired, known_dead = add_claimed(database), add_claimed(database)
    with database.write() as session:
        jobs.request_cancel(session, expired.job_id)
        assert leases.abandon(session, known_dead.job_id).state == jobs.QUEUED
    clock.advance(31)
    with database.write() as session:
        claim = leases.claim_next(session, owner="second")
        assert claim is not None and claim[0].id == known_dead.job_id
        assert jobs.get(session, expired.job_id).state == jobs.CANCELLED


def test_a_models_run_is_claimed_on_its_jobs_target(database: Database) -> None:
    with database.write() as session:
        target = targets.remember(session, sample_target())
        new = jobs.NewJob(workloads=(), target=target, threads=1, trials=1, kind=jobs.MODEL)
        of = Runnable(kind="model", id=jobs.create(session, new)[0].id)
        given = artifacts.remember(session, sha256="cd" * 32, size_bytes=9, kind="input")
        run = runs.submit(session, of=of, input_artifact=given)
        assert (run.of, runs.get(session, run.id).of) == (of, of)
        elsewhere = runs.claim_next(session, owner="a", lifetime=LEASE, targets=["another machine"])
        assert elsewhere is None
        here = runs.claim_next(session, owner="a", lifetime=LEASE, targets=[target])
        assert here is not None and here.of == of


def test_runs_are_claimed_once_and_fenced(database: Database, clock: ManualClock) -> None:
    with database.write() as session:
        kernel = promotions.promote(session, sample_kernel(session))
        given = artifacts.remember(session, sha256="cd" * 32, size_bytes=9, kind="input")
        run = runs.submit(session, of=kernel_run(kernel), input_artifact=given)
        elsewhere = runs.claim_next(session, owner="a", lifetime=LEASE, targets=["another machine"])
        assert elsewhere is None and not runs.waiting(
            session, lifetime=LEASE, targets=["another machine"]
        )
        assert runs.waiting(session, lifetime=LEASE) and runs.waiting(
            session, lifetime=LEASE, targets=[kernel.target]
        )
        first = runs.claim_next(session, owner="a", lifetime=LEASE, targets=[kernel.target])
        assert not runs.waiting(session, lifetime=LEASE)
        assert first is not None and first.id == run.id
        assert runs.claim_next(session, owner="b", lifetime=LEASE) is None
    clock.advance(-3600)  # set back: the lease must not last an hour longer
    with database.read() as session:
        assert runs.waiting(session, lifetime=LEASE)
    clock.advance(3611)
    with database.write() as session:
        second = runs.claim_next(session, owner="b", lifetime=LEASE)
        assert second is not None
        with pytest.raises(StaleLease, match="drop the result"):
            runs.finish(session, run.id, first.fence, output=given)
        assert runs.finish(session, run.id, second.fence, output=given).state == runs.SUCCEEDED
        artifacts.remember(session, sha256="ef" * 32, size_bytes=9, kind="input")
        assert artifacts.forget_unused(session, [given, kernel.artifact, "ef" * 32]) == ("ef" * 32,)
        with pytest.raises(NotFound, match="no artifact"):
            artifacts.get(session, "ef" * 32)
