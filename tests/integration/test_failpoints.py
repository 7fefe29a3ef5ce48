"""SIGKILL before and after each commit of the job engine, on SQLite: nothing acknowledged is lost, nothing is done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from db import events, jobs, kernels, keys, targets, trials
from db.engine import Database
from db.failpoints import VARIABLE
from tests.database_samples import sample_target
from tests.integration.fleet_job import open_in, queue_job
from tests.integration.live_service import MATMUL
from tests.integration.test_api_kills import SERVE, free_port, wait_until_ready

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("fleet")]

ROOT = Path(__file__).resolve().parents[2]
BUDGET = 12
GROUPS = {  # each on a job of its own, in this order, so that every one is passed
    "early": ("claim:before", "claim:after", "space:before", "space:after", "renew:before", "renew:after"),
    "search": ("best:before", "join:before", "join:after", "trial:before", "trial:after", "elapsed:before", "elapsed:after"),
    "ending": ("best:after", "promotion:before", "promotion:after", "task:before", "task:after", "finish:before", "finish:after"),
}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_in(tmp_path)
    yield opened
    opened.close()


def run(directory: Path, job_id: str, failpoint: str = "") -> int:
    """Works on the job in a process of its own; its exit status."""
    command = [sys.executable, "-m", "tests.integration.fleet_job", str(directory), job_id]
    environment = {**os.environ, VARIABLE: failpoint}
    return subprocess.run(command, cwd=ROOT, env=environment, timeout=120, capture_output=True, check=False).returncode


def rows(database: Database, job_id: str) -> dict[int, object]:
    with database.read() as session:
        return {one.trial.number: (one.trial, one.created_at) for one in trials.stored_of_task(session, job_id)}


def assert_consistent(database: Database, job_id: str, before: dict[int, object]) -> dict[int, object]:
    """What was there is there unchanged; trials, their events and their count agree. What is there now."""
    now = rows(database, job_id)
    assert {number: now.get(number) for number in before} == before
    with database.read() as session:
        job, found = jobs.get(session, job_id), events.after(session, job_id, 0)
    assert [event.sequence for event in found] == list(range(1, job.last_event + 1))
    assert sorted(event.data["number"] for event in found if event.kind == "trial") == sorted(now)
    assert job.tasks[0].trials_done == len(now)
    return now


@pytest.mark.timeout(900)
@pytest.mark.parametrize("group", list(GROUPS))
def test_a_job_survives_each_failpoint(database: Database, tmp_path: Path, group: str) -> None:
    job_id = queue_job(database, ["softmax:M=13,N=17"], trials=BUDGET)
    before: dict[int, object] = {}
    for failpoint in GROUPS[group]:
        assert run(tmp_path, job_id, failpoint) == -signal.SIGKILL, failpoint
        before = assert_consistent(database, job_id, before)
    with database.read() as session:
        ended = jobs.get(session, job_id).state == jobs.SUCCEEDED
    assert ended or run(tmp_path, job_id) == 0
    final = assert_consistent(database, job_id, before)
    with database.read() as session:
        job = jobs.get(session, job_id)
        kinds = [event.kind for event in events.after(session, job_id, 0)]
        promoted = kernels.find_promoted(session, job.tasks[0].workload, job.target, 1)
    assert job.state == jobs.SUCCEEDED and sorted(final) == list(range(BUDGET))
    assert kinds.count("succeeded") == 1 and kinds[-1] == "succeeded"
    assert promoted is not None and promoted.id == job.tasks[0].kernel


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_request_is_stored_once_whenever_its_answer_was_lost(database: Database, tmp_path: Path, side: str) -> None:
    with database.write() as session:
        targets.remember(session, sample_target())
        token = keys.create(session, name="test", scopes=["submit"])[1]
    url, port = f"sqlite:///{tmp_path}/fleet.db", free_port()
    command = [sys.executable, "-c", SERVE, url, str(tmp_path / "artifacts"), str(port)]
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "once"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=10, verify=False) as http:
        dying = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), VARIABLE: f"submit:{side}"})
        wait_until_ready(http)
        with pytest.raises(httpx.TransportError):
            http.post("/v1/jobs", json={"workload": MATMUL})
        assert dying.wait(timeout=30) == -signal.SIGKILL
        with database.read() as session:
            stored = jobs.count(session)
        assert stored == (1 if side == "after" else 0)
        living = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
        try:
            wait_until_ready(http)
            again = http.post("/v1/jobs", json={"workload": MATMUL})
            assert again.status_code == 202 and ("Idempotency-Replayed" in again.headers) == (side == "after")
            job = again.json()["id"]
            assert http.post(f"/v1/jobs/{job}/cancel").json()["state"] == jobs.CANCELLED
        finally:
            living.kill()
            living.wait()
    with database.read() as session:
        assert jobs.count(session, state=jobs.STATES) == 1
