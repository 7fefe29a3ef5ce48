"""A full disk, a lock that is held, a server restarted, a clock that jumps: a clear
answer each time, and nothing lost."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import text

from tests.support.database_samples import ManualClock, add_job, timed
from tests.support.live_service import MATMUL, LiveService, options_for, serving
from tests.support.postgres import ACCOUNT, PostgresServer
from tests.support.small_disk import empty, fill_up, small_disk
from tuner.db import jobs, leases, schema, trials
from tuner.db.engine import open_database

HOLDER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""


class Submitting(threading.Thread):
    """Submits jobs one after another, and again with the same key what was refused;
    keeps what was acknowledged and refused."""

    def __init__(self, service: LiveService, *, padding: int = 0) -> None:
        super().__init__(name="submitting")
        self._url, self._token = service.url, service.key("submit", quota=10**6)
        self._padding = padding
        self.over = threading.Event()
        self.acknowledged: list[str] = []
        self.refused: list[httpx.Response] = []

    def run(self) -> None:
        headers = {"Authorization": f"Bearer {self._token}"}
        with httpx.Client(base_url=self._url, headers=headers, timeout=30, verify=False) as http:
            number = 0
            while not self.over.is_set():
                number += 1
                key = f"{number}-" + "x" * self._padding
                while not self.over.is_set():
                    answer = http.post(
                        "/v1/jobs", json={"workload": MATMUL}, headers={"Idempotency-Key": key}
                    )
                    if answer.status_code == 202:
                        self.acknowledged.append(answer.json()["id"])
                        break
                    self.refused.append(answer)
                    time.sleep(0.05)

    def until(self, condition: Any, *, within_s: float = 60.0) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert self.is_alive() and time.monotonic() < deadline, (
                f"{len(self.acknowledged)} done, {len(self.refused)} refused"
            )
            time.sleep(0.02)

    def finish(self) -> None:
        self.over.set()
        self.join(timeout=60)
        assert not self.is_alive()


@contextmanager
def submitting(service: LiveService, *, padding: int = 0) -> Iterator[Submitting]:
    thread = Submitting(service, padding=padding)
    thread.start()
    try:
        thread.until(lambda: len(thread.acknowledged) >= 3)
        yield thread
    finally:
        thread.finish()


def assert_clear(refused: list[httpx.Response], *codes: str) -> None:
    """Every refusal says what is the matter, that it passes, and when to come back."""
    assert refused
    assert {answer.status_code for answer in refused} == {503}, [
        answer.text for answer in refused if answer.status_code != 503
    ]
    assert {answer.json()["code"] for answer in refused} <= set(codes)
    assert all(
        answer.json()["retryable"] and int(answer.headers["Retry-After"]) >= 1 for answer in refused
    )


def assert_all_there(service: LiveService, acknowledged: list[str]) -> None:
    assert len(set(acknowledged)) == len(acknowledged)
    with service.database.read() as session:
        assert {jobs.get(session, job).state for job in acknowledged} == {jobs.QUEUED}
        # The request under way at the end may have been stored without its answer having been read.
        assert len(acknowledged) <= jobs.count(session) <= len(acknowledged) + 1
    assert schema.check(service.database.engine) == []


@contextmanager
def lock_held(file: Path) -> Iterator[None]:
    """Another program holds SQLite's write lock for the block."""
    command = [sys.executable, "-c", HOLDER, str(file)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline().strip() == "held"
        try:
            yield
        finally:
            holder.stdin.close()
            holder.wait(timeout=30)


@pytest.mark.long
def test_a_lock_held_for_half_a_minute(tmp_path: Path) -> None:
    """Readers go on, writers are told to come back within the API's patience, and a
    job's commit waits."""
    url = f"sqlite:///{tmp_path}/tuner.sqlite"
    patient = open_database(
        url, busy_timeout_s=60.0
    )  # an orchestrator waits longer than a client is kept
    with serving(options_for(url, tmp_path)) as service, submitting(service) as client:
        job, reader = service.queue(), service.key("read", "admin")
        lease = service.claim(job)
        recorded = threading.Thread(target=lambda: _record(patient, lease))
        with lock_held(tmp_path / "tuner.sqlite"):
            before, started = (
                len(client.acknowledged),
                time.monotonic(),
            )  # the program that holds it took a while to start
            recorded.start()
            with service.http(reader) as http:
                while time.monotonic() - started < 30.0:
                    assert http.get(f"/jobs/{job}").status_code == 200
                    assert http.get("/health/ready").status_code == 200
                    time.sleep(0.5)
            assert recorded.is_alive() and len(client.acknowledged) <= before + 1
        recorded.join(timeout=60)
        client.until(lambda: len(client.acknowledged) > before + 3)
        client.finish()
        assert_clear(client.refused, "database_busy")
        with service.database.read() as session:
            assert trials.numbers(session, job) == {0}
            assert jobs.count(session) - 1 - len(client.acknowledged) in (0, 1)
        assert schema.check(service.database.engine) == []
    patient.close()


def _record(database: Any, lease: leases.Lease) -> None:
    with database.write() as session:
        trials.record(session, lease, timed(0))


@pytest.mark.long
def test_a_full_disk_under_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/disk/tuner.sqlite"
    with (
        small_disk(tmp_path / "disk", megabytes=24) as disk,
        serving(options_for(url, tmp_path)) as service,
        submitting(service) as client,
    ):
        fill_and_free(service, client, disk)


@pytest.mark.long
@pytest.mark.postgres
def test_a_full_disk_under_postgresql(postgres_server: PostgresServer, tmp_path: Path) -> None:
    """The database's tables lie on the small disk; the server's log of changes has
    room, as its manual advises."""
    folder = postgres_server.folder / "small"
    with small_disk(folder, megabytes=24, owner=ACCOUNT) as disk:
        name = "small"
        with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
            (disk / "space").mkdir(mode=0o700)
            subprocess.run(["chown", ACCOUNT, str(disk / "space")], check=True, timeout=10)
            connection.execute(f"CREATE TABLESPACE small LOCATION '{disk}/space'".encode())
            connection.execute(f"CREATE DATABASE {name} TABLESPACE small".encode())
        try:
            with (
                serving(options_for(postgres_server.url(name), tmp_path)) as service,
                submitting(service) as client,
            ):
                fill_and_free(service, client, disk)
        finally:
            with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
                connection.execute(b"DROP TABLESPACE small")


def fill_and_free(service: LiveService, client: Submitting, disk: Path) -> None:
    reader = service.key("read", "admin")
    fill_up(disk, leave_bytes=64 * 1024)
    client.until(lambda: len(client.refused) >= 3, within_s=120)
    with service.http(reader) as http:
        assert http.get("/jobs?limit=5").status_code == 200, "what is there can still be read"
    before = len(client.acknowledged)
    empty(disk)
    client.until(lambda: len(client.acknowledged) > before + 3)
    client.finish()
    assert_clear(client.refused, "database_full")
    assert_all_there(service, client.acknowledged)


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_a_server_restarted_under_requests(
    postgres_server: PostgresServer, tmp_path: Path, mode: str
) -> None:
    """`immediate` is what a power cut does to it; `fast` tells each connection that it ends."""
    url = postgres_server.new_database()
    with serving(options_for(url, tmp_path)) as service, submitting(service) as client:
        for _ in range(2):
            before, refused = len(client.acknowledged), len(client.refused)
            postgres_server.stop(mode)
            try:
                client.until(lambda: len(client.refused) > refused)  # noqa: B023 - the loop waits for it
                with service.http() as http:
                    assert http.get("/health/live").status_code == 200
                    assert http.get("/health/ready").status_code == 503
            finally:
                postgres_server.start()
            client.until(lambda: len(client.acknowledged) > before + 2)  # noqa: B023 - the loop waits for it
        client.finish()
        assert_clear(client.refused, "database_unreachable")
        assert_all_there(service, client.acknowledged)


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_a_clock_that_jumps_neither_loses_nor_holds_a_job(tmp_path: Path, seconds: int) -> None:
    """On SQLite leases follow this machine's clock. A living holder goes on; a dead
    one's job is free within a lease."""
    clock = ManualClock()
    database = open_database(tmp_path / "tuner.sqlite", clock=clock)
    job = add_job(database)
    with database.write() as session:
        lease = leases.claim(session, job, owner="first")[1]
        trials.record(session, lease, timed(0))
    clock.advance(seconds)
    with database.write() as session:
        trials.record(session, lease, timed(1))
        lease, _ = leases.renew(session, lease)
    with database.write() as session:
        assert leases.claim_next(session, owner="second") is None, (
            "renewed by the new time, it is held"
        )
    clock.advance(-seconds)  # back, and the holder dies before it renews
    clock.advance(31)
    with database.write() as session:
        claimed = leases.claim_next(session, owner="second")
    assert claimed is not None and claimed[0].id == job
    with database.write() as session:
        trials.record(session, claimed[1], timed(2))
        leases.finish(session, claimed[1], jobs.SUCCEEDED)
    with database.read() as session:
        assert trials.numbers(session, job) == {0, 1, 2}
    database.close()


@pytest.mark.postgres
def test_a_servers_clock_decides_not_the_machines(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database(postgres_url)
    monkeypatch.setattr("tuner.db.engine.datetime", None)  # this machine's clock is not looked at
    add_job(database)
    with database.read() as session:
        server = session.scalar(text("SELECT clock_timestamp()"))
        assert abs((session.now() - server).total_seconds()) < 5
    database.close()
