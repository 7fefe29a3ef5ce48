"""A job whose target no runner has stays queued and says what it waits for, everywhere;
a runner that joins serves it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.database_samples import ManualClock, sample_target
from tests.support.fleet_job import QUICK, open_in, queue_job
from tests.support.live_service import options_for, serving, wait_for
from tests.support.targets import SM_90, host_target
from tuner.db import jobs, runners, targets, workers, workloads
from tuner.db.engine import Database, open_database
from tuner.target.target import Target
from tuner.workers.jobs.orchestrator import Orchestrator, OrchestratorOptions
from tuner.workers.jobs.presence import Presence
from tuner.workers.jobs.timeline import worker_id
from tuner.workload.spec import parse_spec, to_document

ROOT = Path(__file__).resolve().parents[2]
WAITS = "waiting for a runner of cuda:sm_90"


def queue(database: Database, target: Target) -> str:
    workload = parse_spec("matmul:M=8,N=8,K=8")
    with database.write() as session:
        targets.remember(session, target)
        key = workloads.remember(session, workload, to_document(workload))
        return jobs.create(
            session, jobs.NewJob(workloads=(key,), target=target.key, threads=1, trials=4)
        )[0].id


def reason(database: Database, job: str) -> str | None:
    with database.read() as session:
        return runners.waiting(session, [jobs.get(session, job)]).get(job)


def test_a_job_waits_as_long_as_no_runner_of_its_target_was_heard_of(tmp_path: Path) -> None:
    clock = ManualClock()
    database = open_database(tmp_path / "t.db", clock=clock)
    here = sample_target("here")
    gpu = queue(database, SM_90)
    cpu = queue(database, here)
    assert reason(database, gpu) == WAITS
    assert reason(database, cpu) == "waiting for a runner of here"
    with database.write() as session:
        new = workers.NewWorker(
            id="w", host="h", target=here.key, isolation=None, lanes=[], versions={}
        )
        workers.join(session, new)
    assert reason(database, cpu) is None and reason(database, gpu) == WAITS
    clock.advance((workers.SILENT + timedelta(seconds=1)).total_seconds())
    assert reason(database, cpu) == "waiting for a runner of here"
    with database.write() as session:
        workers.heartbeat(session, "w")
        workers.set_state(session, "w", workers.QUARANTINED)
    assert reason(database, cpu) == "waiting for a runner of here"
    with database.write() as session:
        jobs.request_cancel(session, gpu)
    assert reason(database, gpu) is None
    database.close()


def test_presence_joins_beats_and_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.workers.jobs.presence.BEAT_S", 0.05)
    database, target = open_database(tmp_path / "t.db"), sample_target("here")
    job = queue(database, target)
    presence = Presence(database, target, [])
    presence.join()
    try:
        assert reason(database, job) is None
        with database.write() as session:
            workers.set_state(session, worker_id(target), workers.LOST)
        wait_for(lambda: reason(database, job) is None)
    finally:
        presence.leave()
    assert reason(database, job) == "waiting for a runner of here"
    presence.leave()
    database.close()


def test_the_service_takes_a_job_for_a_gpu_and_says_what_it_waits_for(tmp_path: Path) -> None:
    with (
        serving(options_for(f"sqlite:///{tmp_path}/t.db", tmp_path)) as live,
        live.http(live.key("submit", "read")) as http,
    ):
        body = {
            "workload": {"op": "matmul", "params": {"M": 8, "N": 8, "K": 8}},
            "target": "cuda:sm_90",
        }
        asked = http.post("/jobs", json=body)
        assert asked.status_code == 202, asked.text
        assert (asked.json()["state"], asked.json()["waiting"]) == ("queued", WAITS)
        job = asked.json()["id"]
        assert http.get(f"/jobs/{job}").json()["waiting"] == WAITS
        assert [job["waiting"] for job in http.get("/jobs").json()["items"]] == [WAITS]
        assert http.post(f"/jobs/{job}/cancel").json()["waiting"] is None
        looked_up = http.post("/lookup", json={**body, "target": "cuda:sm_80"})
        assert looked_up.status_code == 200, looked_up.text
        assert (
            http.get(f"/jobs/{looked_up.json()['job']}").json()["waiting"]
            == "waiting for a runner of cuda:sm_80"
        )
        assert http.post("/jobs", json={**body, "target": "cuda:sm_00"}).status_code == 422


def tuner(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {name: value for name,
    value in os.environ.items() if not name.startswith("TUNER_")} | {
        "PYTHONPATH": str(ROOT), "XDG_DATA_HOME": str(directory / "data"),
        "XDG_CONFIG_HOME": str(directory / "config"),
    }  # fmt: skip
    command = [sys.executable, "-P", "-m", "tuner", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=directory, env=environment, stdout=pipe, stderr=pipe, text=True
    )


@pytest.mark.slow
def test_the_command_says_what_it_waits_for_and_what_ends_the_wait(tmp_path: Path) -> None:
    waiting = tuner(tmp_path, "tune", "matmul:M=8,N=8,K=8", "--target", "cuda:sm_90")
    assert waiting.stderr is not None
    said = ""
    while WAITS not in said:
        line = waiting.stderr.readline()
        assert line, said
        said += line
    assert "stays queued until a runner of cuda:sm_90 joins" in said and "Ctrl-C cancels" in said
    shown, _ = tuner(tmp_path, "show", "last").communicate(timeout=60)
    assert f"queued: {WAITS}" in shown
    waiting.send_signal(signal.SIGINT)
    waiting.communicate(timeout=60)
    assert waiting.returncode == 3
    shown, _ = tuner(tmp_path, "show", "last").communicate(timeout=60)
    assert "cancelled" in shown and WAITS not in shown


@pytest.mark.slow
@pytest.mark.xdist_group("fleet")
@pytest.mark.timeout(300)
def test_a_runner_that_joins_serves_what_waited_for_it_and_nothing_else(tmp_path: Path) -> None:
    """The machine that joins is this one; before it there is only a machine of another
    name, which leaves the job alone."""
    database = open_in(tmp_path)
    other, here = sample_target("another machine"), host_target()
    options = OrchestratorOptions(artifacts=tmp_path / "artifacts", limits=QUICK)
    job, gpu = (
        queue_job(database, ["matmul:M=16,N=16,K=16"], trials=3),
        queue(database, SM_90),
    )
    stops = threading.Event(), threading.Event()
    threads = [
        threading.Thread(target=Orchestrator(database, target, options).serve, args=(stop,))
        for target, stop in zip((other, here), stops, strict=True)
    ]
    try:
        threads[0].start()
        time.sleep(2.0)
        assert reason(database, job) == f"waiting for a runner of {here.name}"
        threads[1].start()
        wait_for(lambda: reason(database, job) is None, timeout_s=30)

        def state() -> str:
            with database.read() as session:
                return jobs.get(session, job).state

        wait_for(lambda: state() in jobs.FINISHED, timeout_s=200)
        assert state() == jobs.SUCCEEDED
        assert reason(database, gpu) == WAITS
    finally:
        for stop, thread in zip(stops, threads, strict=True):
            stop.set()
            if thread.is_alive():
                thread.join(timeout=60)
        database.close()
