"""The service killed at random moments while a client submits: what was acknowledged is
there, once, and it soon answers again.

TUNER_KILL_CYCLES sets how often; the default suits a test run, a release is tried 200 times.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.support.database_samples import sample_target
from tests.support.live_service import MATMUL
from tests.support.server_process import free_port, served, wait_until_ready
from tuner.db import jobs, keys, schema, targets
from tuner.db.engine import open_database

CYCLES = int(os.environ.get("TUNER_KILL_CYCLES", "8"))


class Submitter(threading.Thread):
    """Submits jobs one after another, each until it is acknowledged, and keeps a log of
    what was."""

    def __init__(self, url: str, token: str, number: int) -> None:
        super().__init__(name=f"submitter {number}")
        self.url, self.token, self.number = url, token, number
        self.stop = threading.Event()
        self.acknowledged: dict[str, str] = {}  # Idempotency-Key -> job
        self.tried = 0

    def run(self) -> None:
        with httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=5,
            verify=False,
        ) as http:
            while not self.stop.is_set():
                self.tried += 1
                key = f"{self.number}-{self.tried}"
                while not self.stop.is_set() and key not in self.acknowledged:
                    try:
                        answer = http.post(
                            "/v1/jobs", json={"workload": MATMUL}, headers={"Idempotency-Key": key}
                        )
                    except httpx.TransportError:
                        time.sleep(0.02)
                        continue
                    assert answer.status_code in (202, 503), answer.text
                    if answer.status_code == 202:
                        self.acknowledged[key] = answer.json()["id"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def test_acknowledged_jobs_survive_kills(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    url = (
        f"sqlite:///{tmp_path}/tuner.sqlite"
        if kind == "sqlite"
        else str(request.getfixturevalue("postgres_url"))
    )
    database = open_database(url)
    with database.write() as session:
        targets.remember(session, sample_target())
        tokens = [
            keys.create(session, name="test", scopes=["submit"], quota=10**6)[1] for _ in range(2)
        ]
    port, chance = free_port(), random.Random(20261)
    submitters = [
        Submitter(f"http://127.0.0.1:{port}", token, number) for number, token in enumerate(tokens)
    ]
    for submitter in submitters:
        submitter.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=5, verify=False) as http:
            for _ in range(CYCLES):
                with served(url, tmp_path, port):
                    wait_until_ready(http)
                    time.sleep(chance.uniform(0.0, 0.5))
    finally:
        for submitter in submitters:
            submitter.stop.set()
        for submitter in submitters:
            submitter.join(timeout=30)
    acknowledged = {job for submitter in submitters for job in submitter.acknowledged.values()}
    assert (
        len(acknowledged) == sum(len(submitter.acknowledged) for submitter in submitters) > CYCLES
    )
    with database.read() as session:
        stored = {job for job in acknowledged if jobs.get(session, job).state == "queued"}
        assert stored == acknowledged
        # The last request of each submitter may have been committed without its answer
        # having arrived.
        assert len(acknowledged) <= jobs.count(session) <= len(acknowledged) + len(submitters)
    assert schema.check(database.engine) == []
    database.close()
