"""Which jobs an orchestrator that chooses is shown: those it could claim, the most urgent first. On both databases."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from db import leases
from db.engine import Database, open_database
from tests.database_samples import ManualClock, add_claimed, add_job, sample_target

LEASE = timedelta(seconds=10)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Database]:
    url = f"sqlite:///{tmp_path}/tuner.sqlite" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
    opened = open_database(url, clock=clock)
    yield opened
    opened.close()


def waiting(database: Database, target: str = sample_target().key) -> list[str]:
    with database.read() as session:
        return [job.id for job in leases.waiting(session, targets=[target])]


def test_urgent_ones_come_first_then_the_oldest(database: Database, clock: ManualClock) -> None:
    first = add_job(database)
    clock.advance(1)
    second, urgent = add_job(database), add_job(database, priority=3)
    assert waiting(database) == [urgent, first, second]
    assert waiting(database, "another machine") == []


def test_a_held_job_waits_again_once_its_lease_ran_out(database: Database, clock: ManualClock) -> None:
    held = add_claimed(database)
    assert waiting(database) == []
    clock.advance(leases.DEFAULT_LEASE.total_seconds() + 1)
    assert waiting(database) == [held.job_id]


def test_what_is_shown_can_be_claimed_once(database: Database) -> None:
    shown = add_job(database)
    with database.write() as session:
        leases.claim(session, shown, owner="a", lifetime=LEASE)
    assert waiting(database) == []
