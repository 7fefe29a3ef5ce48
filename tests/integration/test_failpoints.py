"""SIGKILL before and after each named commit, on both databases: nothing acknowledged
is lost, nothing is done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.integration.failpoints.job_groups import GROUPS
from tests.integration.failpoints.requests import REQUESTS, Answered
from tests.integration.failpoints.steps import STEPS
from tests.support.database_samples import sample_target
from tests.support.fleet_job import FOREIGN_KERNEL, queue_foreign, queue_job
from tests.support.live_service import MATMUL
from tests.support.server_process import SERVE, free_port, wait_until_ready
from tuner.db import events, jobs, kernels, keys, schema, targets, tasks, trials
from tuner.db.engine import Database, open_database
from tuner.db.failpoints import VARIABLE

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("fleet")]

ROOT = Path(__file__).resolve().parents[2]
BUDGET = 12
LIMIT_S = 150


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    url = (
        f"sqlite:///{tmp_path}/fleet.db"
        if request.param == "sqlite"
        else str(request.getfixturevalue("postgres_url"))
    )
    opened = open_database(url)
    yield opened
    opened.close()


def address(database: Database) -> str:
    return database.engine.url.render_as_string(hide_password=False)


def run(database: Database, directory: Path, job_id: str, failpoint: str = "") -> int:
    """Works on the job in a process of its own; its exit status."""
    return process(
        "tests.support.fleet_job",
        str(directory),
        job_id,
        address(database),
        failpoint=failpoint,
    )


def process(*arguments: str, failpoint: str) -> int:
    command, environment = [sys.executable, "-m", *arguments], {**os.environ, VARIABLE: failpoint}
    return subprocess.run(
        command, cwd=ROOT, env=environment, timeout=LIMIT_S, capture_output=True, check=False
    ).returncode


def rows(database: Database, job_id: str) -> dict[int, object]:
    with database.read() as session:
        return {
            row.trial.number: (row.trial, row.created_at)
            for row in trials.stored_of_task(session, job_id)
        }


def assert_consistent(
    database: Database, job_id: str, before: dict[int, object]
) -> dict[int, object]:
    """What was there is there unchanged; trials, their events and their count agree.
    What is there now."""
    now = rows(database, job_id)
    assert {number: now.get(number) for number in before} == before
    with database.read() as session:
        job, emitted = jobs.get(session, job_id), events.after(session, job_id, 0)
    assert [event.sequence for event in emitted] == list(range(1, job.last_event + 1))
    assert sorted(event.data["number"] for event in emitted if event.kind == "trial") == sorted(now)
    assert job.tasks[0].trials_done == len(now)
    return now


@pytest.mark.timeout(900)
@pytest.mark.parametrize("group", list(GROUPS))
def test_a_job_survives_each_failpoint(database: Database, tmp_path: Path, group: str) -> None:
    job_id = queue_job(database, ["softmax:M=13,N=17"], trials=BUDGET)
    before: dict[int, object] = {}
    for failpoint in GROUPS[group]:
        assert run(database, tmp_path, job_id, failpoint) == -signal.SIGKILL, failpoint
        before = assert_consistent(database, job_id, before)
    with database.read() as session:
        ended = jobs.get(session, job_id).state == jobs.SUCCEEDED
    assert ended or run(database, tmp_path, job_id) == 0
    final = assert_consistent(database, job_id, before)
    with database.read() as session:
        job = jobs.get(session, job_id)
        kinds = [event.kind for event in events.after(session, job_id, 0)]
        promoted = kernels.find_promoted(session, job.tasks[0].workload, job.target, 1)
    assert job.state == jobs.SUCCEEDED and sorted(final) == list(range(BUDGET))
    assert kinds.count("succeeded") == 1 and kinds[-1] == "succeeded"
    assert promoted is not None and promoted.id == job.tasks[0].kernel


@pytest.mark.timeout(900)
def test_an_incumbent_that_wins_again_survives_each_failpoint(
    database: Database, tmp_path: Path
) -> None:
    first = queue_job(database, ["softmax:M=13,N=17"], trials=BUDGET)
    assert run(database, tmp_path, first) == 0
    again = queue_job(
        database, ["softmax:M=13,N=17"], trials=1
    )  # the default alone, raced against the kernel
    for failpoint in ("validated:before", "validated:after"):
        assert run(database, tmp_path, again, failpoint) == -signal.SIGKILL, failpoint
    assert run(database, tmp_path, again) == 0
    with database.read() as session:
        job = jobs.get(session, again)
        assert (
            job.state == jobs.SUCCEEDED
            and job.tasks[0].kernel == jobs.get(session, first).tasks[0].kernel
        )


@pytest.mark.timeout(900)
def test_a_verdict_is_given_once_around_each_failpoint(database: Database, tmp_path: Path) -> None:
    job_id = queue_foreign(database, tmp_path, FOREIGN_KERNEL)
    for failpoint, given in (("verdict:before", 0), ("verdict:after", 1)):
        assert run(database, tmp_path, job_id, failpoint) == -signal.SIGKILL, failpoint
        assert len(verdicts(database, job_id)) == given
    first = verdicts(database, job_id)
    assert run(database, tmp_path, job_id) == 0
    assert verdicts(database, job_id) == first
    with database.read() as session:
        job = jobs.get(session, job_id)
    assert (job.state, job.settings[tasks.VERDICT]) == (jobs.SUCCEEDED, first[0])


def verdicts(database: Database, job_id: str) -> list[object]:
    with database.read() as session:
        emitted = events.after(session, job_id, 0)
    return [event.data for event in emitted if event.kind == "verdict"]


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("name", list(STEPS))
def test_a_step_beside_the_trials_is_done_whole_or_not_at_all(
    database: Database, tmp_path: Path, name: str, side: str
) -> None:
    step = STEPS[name]
    step.prepare(database, tmp_path)
    assert step.effects(database) == 0
    arguments = ("tests.integration.failpoints.steps", name, address(database), str(tmp_path))
    assert process(*arguments, failpoint=f"{name}:{side}") == -signal.SIGKILL
    assert step.effects(database) == (1 if side == "after" else 0)
    assert process(*arguments, failpoint="") == (0 if side == "before" or not step.once else 1)
    assert step.effects(database) == (step.again if side == "after" else 1)
    assert schema.check(database.engine) == []


@contextmanager
def served(
    database: Database, folder: Path, port: int, failpoint: str = ""
) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", SERVE, address(database), str(folder / "artifacts"), str(port)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), VARIABLE: failpoint}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def client(database: Database, port: int, **headers: str) -> Iterator[httpx.Client]:
    with database.write() as session:
        targets.remember(session, sample_target())
        token = keys.create(session, name="test", scopes=["admin"])[1]
    headers["Authorization"] = f"Bearer {token}"
    with httpx.Client(
        base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30, verify=False
    ) as http:
        yield http


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("name", list(REQUESTS))
def test_a_request_takes_effect_whole_or_not_at_all(
    database: Database, tmp_path: Path, name: str, side: str
) -> None:
    request, port = REQUESTS[name], free_port()
    path, body = request.prepare(database, tmp_path)
    with client(database, port) as http:
        with served(database, tmp_path, port, f"{name}:{side}") as dying:
            wait_until_ready(http, LIMIT_S)
            with pytest.raises(httpx.TransportError):
                http.request(request.method, path, **body)
            assert dying.wait(timeout=30) == -signal.SIGKILL
        assert request.effects(database) == (1 if side == "after" else 0)
        with served(database, tmp_path, port):
            wait_until_ready(http, LIMIT_S)
            answer = http.request(request.method, path, **body)
        expected = Answered(status=answer.status_code, effects=request.effects(database))
        assert expected == (request.again if side == "after" else request.first), answer.text


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_job_is_stored_once_whenever_its_answer_was_lost(
    database: Database, tmp_path: Path, side: str
) -> None:
    port = free_port()
    with client(database, port, **{"Idempotency-Key": "once"}) as http:
        with served(database, tmp_path, port, f"submit:{side}") as dying:
            wait_until_ready(http, LIMIT_S)
            with pytest.raises(httpx.TransportError):
                http.post("/v1/jobs", json={"workload": MATMUL})
            assert dying.wait(timeout=30) == -signal.SIGKILL
        with database.read() as session:
            stored = jobs.count(session)
        assert stored == (1 if side == "after" else 0)
        with served(database, tmp_path, port):
            wait_until_ready(http, LIMIT_S)
            again = http.post("/v1/jobs", json={"workload": MATMUL})
            assert again.status_code == 202 and ("Idempotency-Replayed" in again.headers) == (
                side == "after"
            )
            job = again.json()["id"]
            assert http.post(f"/v1/jobs/{job}/cancel").json()["state"] == jobs.CANCELLED
    with database.read() as session:
        assert jobs.count(session, state=jobs.STATES) == 1
