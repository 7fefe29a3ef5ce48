"""The lease's heartbeat: prolongs it, hears of a cancellation, and knows when the job
is somebody else's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.fleet_job import open_in, queue_job
from tuner.db import jobs, leases
from tuner.db.engine import Database
from tuner.db.errors import StaleLease
from tuner.workers.jobs.heartbeat import Heartbeat

LIFETIME_S = 0.6


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_in(tmp_path)
    yield opened
    opened.close()


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def lost(heart: Heartbeat) -> bool:
    try:
        heart.check()
    except StaleLease:
        return True
    return False


def test_a_lease_lives_as_long_as_its_heart_beats(database: Database) -> None:
    job_id = queue_job(database, ["matmul:M=8,N=8,K=8"], trials=1)
    with database.write() as session:
        _, lease = leases.claim(
            session, job_id, owner="one", lifetime=timedelta(seconds=LIFETIME_S)
        )

    def lives_on() -> bool:
        heart.check()
        with database.read() as session:
            until = jobs.get(session, job_id).lease_expires_at
        return until is not None and until - lease.expires_at > timedelta(seconds=2 * LIFETIME_S)

    with Heartbeat(database, lease, lifetime_s=LIFETIME_S) as heart:
        assert within(60, lives_on)
        assert not heart.cancelled
        with database.write() as session:
            jobs.request_cancel(session, job_id)
        assert within(5, lambda: heart.cancelled)


def test_a_heart_knows_that_its_job_was_taken_over(database: Database) -> None:
    job_id = queue_job(database, ["matmul:M=8,N=8,K=8"], trials=1)
    with database.write() as session:
        _, lease = leases.claim(
            session, job_id, owner="one", lifetime=timedelta(seconds=LIFETIME_S)
        )
    with Heartbeat(database, lease, lifetime_s=LIFETIME_S) as heart:
        with database.write() as session:
            leases.claim(session, job_id, owner="two", take_over=True)
        assert within(5, lambda: lost(heart))
