"""Two workers join a Ray cluster by `tuner worker`, one is lost in the middle of a job: only what it held is tried again."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from db import jobs
from tests.integration.fleet_job import QUICK, open_in, queue_job
from tests.integration.test_api_kills import free_port
from tests.integration.test_workers import assert_complete, assert_computes, recorded
from tuner.measure.outcome import Timed
from tuner.target.detect import detect_cpu
from tuner.tuning import TrialRecorded
from workers import session
from workers.channel import Child, spawn
from workers.host import mismatch
from workers.machine import plan_machine, usable_nodes
from workers.messages import HostPlan
from workers.orchestrator import OrchestratorOptions, run_job
from workers.progress import Progress
from workers.timeline import versions

ROOT = Path(__file__).resolve().parents[2]
BUDGET = 40


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a head with a token of its own."""
    folder = Path(tempfile.mkdtemp(prefix="tc-", dir="/tmp"))
    token = folder / "token"
    token.write_text(secrets.token_hex(32), encoding="ascii")
    token.chmod(0o600)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    port = free_port()
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--node-ip-address=127.0.0.1"]
    command += [f"--port={port}", "--num-cpus=0", "--include-dashboard=false", "--disable-usage-stats"]
    command += [f"--temp-dir={folder}/ray"]
    command += ["--object-store-memory=80000000", "--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"]
    head = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        everything = psutil.Process(head.pid).children(recursive=True)
        head.terminate()
        head.wait(timeout=30)
        _, alive = psutil.wait_procs(everything, timeout=10)
        for process in alive:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def worker(address: str, name: str, log: Path, *, token: str | None = None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "tuner", "worker", "--address", address, "--name", name]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} | ({} if token is None else {"RAY_AUTH_TOKEN_PATH": token})
    with log.open("wb") as output:
        return subprocess.Popen(command, cwd=log.parent, env=environment, stdout=output, stderr=output)


def host_plan(name: str, address: str) -> HostPlan:
    here = plan_machine(usable_nodes(), threads=1)
    return HostPlan(
        name=name,
        address=address,
        lanes=here.lanes,
        builder_cores=here.builder_cores,
        alternates=here.alternates,
        target=detect_cpu().key,
        versions=versions(),
        labels={},
        storage="",
    )


def host_of_another_version(address: str) -> Child:
    """A host that speaks an older protocol, started as `tuner worker` starts one."""
    folder = session.make_session()
    environment = session.driver_environment(folder, local=False)
    child = spawn("workers.host", str(folder), directory=folder / "empty", environment=environment, flags=("-P",))
    plan = host_plan("outdated", address)
    child.connection.send(replace(plan, versions={**plan.versions, "protocol": "0"}))
    return child


def wait_until_joined(log: Path, process: subprocess.Popen[bytes], *, times: int = 1) -> None:
    """Until the worker has joined; one that lost its node joins again."""
    deadline = time.monotonic() + 200
    while log.read_text().count(" joined ") < times:
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


@pytest.mark.long
@pytest.mark.xdist_group("fleet")
@pytest.mark.timeout(400)
def test_a_lost_node_costs_only_what_it_held(cluster: str, tmp_path: Path) -> None:
    logs = [tmp_path / f"{name}.log" for name in ("one", "two")]
    processes = [worker(cluster, log.stem, log) for log in logs]
    outdated = host_of_another_version(cluster)
    lost = False
    seen: set[str] = set()

    def observe(progress: Progress) -> None:
        nonlocal lost
        if isinstance(progress, TrialRecorded):
            seen.add(str(getattr(getattr(progress.trial.outcome, "conditions", None), "lane", "")))
            if not lost and len(recorded(database, job_id)) >= BUDGET // 4 and any(lane.startswith("two/") for lane in seen):
                lost = True
                for process in reversed(psutil.Process(processes[1].pid).children(recursive=True)):
                    process.send_signal(signal.SIGKILL)  # the raylet and all that runs on the node

    database = open_in(tmp_path)
    try:
        for log, process in zip(logs, processes, strict=True):
            wait_until_joined(log, process)
        job_id = queue_job(database, ["matmul:M=48,N=40,K=32"], trials=BUDGET)
        options = OrchestratorOptions(artifacts=tmp_path / "artifacts", limits=QUICK, address=cluster)
        report = run_job(database, job_id, options, observer=observe)
        assert report.job.state == jobs.SUCCEEDED, report.job.error
        assert lost and {lane.partition("/")[0] for lane in seen} >= {"one", "two"}
        found = recorded(database, job_id)
        assert_complete(found, BUDGET)
        assert all(isinstance(trial.outcome, Timed) for trial in found)
        assert_computes(database, report.job.tasks[0].kernel, tmp_path)
        wait_until_joined(logs[1], processes[1], times=2)
        notices = [outdated.connection.recv() for _ in range(2)]
        assert [notice.kind for notice in notices] == ["ready", "refused"]
        assert "worker outdated has protocol 0 (needed is 1)" in notices[1].message
        assert not any(lane.startswith("outdated/") for lane in seen)
    finally:
        database.close()
        outdated.stop(grace_s=30)
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(timeout=60)


@pytest.mark.long
@pytest.mark.xdist_group("fleet")
@pytest.mark.timeout(180)
def test_a_worker_without_the_token_does_not_join(cluster: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text(secrets.token_hex(32), encoding="ascii")
    stranger = worker(cluster, "stranger", tmp_path / "log", token=str(other))
    assert stranger.wait(timeout=150) == 1
    text = (tmp_path / "log").read_text()
    assert re.search("could not join", text) and other.read_text() not in text


def test_a_host_with_other_versions_is_refused_by_name() -> None:
    host = host_plan("old-machine", "127.0.0.1:1")
    assert mismatch(host, versions()) is None
    for name in ("apache-tvm", "tuner", "protocol", "ray"):
        text = mismatch(replace(host, versions={**host.versions, name: "0.1"}), versions())
        assert text is not None and "old-machine" in text and f"{name} 0.1 (needed is {versions()[name]})" in text
