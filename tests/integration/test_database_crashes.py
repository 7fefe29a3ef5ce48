"""What was acknowledged survives: writers killed at any moment, a server stopped and started."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.database_samples import add_claimed, add_job
from tests.support.postgres import PostgresServer
from tuner.db import jobs, leases, schema, trials
from tuner.db.engine import open_database
from tuner.db.errors import DatabaseUnreachable

WRITER = """
import sys
from db import leases, trials
from db.engine import open_database
from tests.support.database_samples import timed
database = open_database(sys.argv[1])
with database.write() as session:
    lease = leases.claim(session, sys.argv[2], owner="writer", take_over=True)[1]
with database.read() as session:
    number = len(trials.numbers(session, sys.argv[2]))
while True:
    with database.write() as session:
        trials.record(session, lease, timed(number))
    print(number, flush=True)
    number += 1
"""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield (
        f"sqlite:///{tmp_path}/tuner.sqlite"
        if request.param == "sqlite"
        else str(request.getfixturevalue("postgres_url"))
    )


@pytest.mark.slow
def test_trials_acknowledged_before_a_kill_are_there_once(url: str) -> None:
    database, chance, acknowledged = open_database(url), random.Random(7), list[int]()
    job = add_claimed(database).job_id
    for _ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, url, job], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        acknowledged.append(int(writer.stdout.readline()))  # it is at work
        time.sleep(chance.uniform(0, 0.2))
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged += map(int, writer.stdout.read().split())
        writer.wait(timeout=30)
        writer.stdout.close()
        with database.read() as session:
            numbers = trials.numbers(session, job)
            assert set(acknowledged) <= numbers == set(range(len(numbers)))
            assert jobs.get(session, job).tasks[0].trials_done == len(numbers)
    assert len(acknowledged) == len(set(acknowledged))
    with database.write() as session:
        leases.finish(
            session, leases.claim(session, job, owner="last", take_over=True)[1], jobs.SUCCEEDED
        )
    assert schema.check(database.engine) == []
    database.close()


@pytest.mark.postgres
@pytest.mark.slow
def test_a_stopped_server_is_named_and_used_again_once_it_is_back(
    postgres_server: PostgresServer,
) -> None:
    database = open_database(postgres_server.new_database())
    before = add_job(database)
    postgres_server.stop()
    try:
        with pytest.raises(DatabaseUnreachable, match="check that the server runs") as caught:
            add_job(database)
        assert caught.value.retryable
    finally:
        postgres_server.start()
    after = add_job(database)
    with database.read() as session:
        assert [job.id for job in jobs.list_page(session).items] == [after, before]
    database.close()
