"""Two workers join a Ray cluster by `tuner worker`, one is lost in the middle of a job:
only what it held is tried again."""

from __future__ import annotations

import re
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.support.cluster import Head, running_head, wait_until_joined, worker
from tests.support.fleet_job import QUICK, open_in, queue_job
from tests.support.fleet_records import assert_complete, assert_computes, recorded
from tests.support.targets import host_target
from tuner.db import events, jobs, workers
from tuner.db.engine import Database
from tuner.measure.outcome import Timed
from tuner.tuning import TrialRecorded
from tuner.workers.fleet import session
from tuner.workers.fleet.channel import Child, spawn
from tuner.workers.fleet.host import mismatch
from tuner.workers.fleet.machine import plan_machine, usable_nodes
from tuner.workers.fleet.messages import HostPlan
from tuner.workers.fleet.notices import FleetReady, FleetRefused
from tuner.workers.jobs.orchestrator import JobReport, OrchestratorOptions, run_job
from tuner.workers.jobs.progress import Progress
from tuner.workers.jobs.timeline import PROTOCOL, versions

BUDGET = 40


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Iterator[Head]:
    with running_head(monkeypatch) as started:
        yield started


@pytest.fixture
def cluster(head: Head) -> str:
    return head.address


def host_plan(name: str, address: str) -> HostPlan:
    here = plan_machine(usable_nodes(), threads=1)
    return HostPlan(
        name=name,
        address=address,
        lanes=here.lanes,
        builder_cores=here.builder_cores,
        alternates=here.alternates,
        target=host_target().key,
        versions=versions(),
        labels={},
        storage="",
    )


def host_of_another_version(address: str) -> Child:
    """A host that speaks an older protocol, started as `tuner worker` starts one."""
    folder = session.make_session()
    environment = session.driver_environment(folder, local=False)
    child = spawn(
        "tuner.workers.fleet.host",
        str(folder),
        directory=folder / "empty",
        environment=environment,
        flags=("-P",),
    )
    plan = host_plan("outdated", address)
    child.connection.send(replace(plan, versions={**plan.versions, "protocol": "0"}))
    return child


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
            if (
                not lost
                and len(recorded(database, job_id)) >= BUDGET // 4
                and any(lane.startswith("two/") for lane in seen)
            ):
                lost = True
                for process in reversed(psutil.Process(processes[1].pid).children(recursive=True)):
                    process.send_signal(signal.SIGKILL)  # the raylet and all that runs on the node

    database = open_in(tmp_path)
    try:
        for log, process in zip(logs, processes, strict=True):
            wait_until_joined(log, process)
        job_id = queue_job(database, ["matmul:M=48,N=40,K=32"], trials=BUDGET)
        options = OrchestratorOptions(
            artifacts=tmp_path / "artifacts", limits=QUICK, address=cluster
        )
        report = run_job(database, job_id, options, observer=observe)
        assert report.job.state == jobs.SUCCEEDED, report.job.error
        assert lost and {lane.partition("/")[0] for lane in seen} >= {"one", "two"}
        recorded_trials = recorded(database, job_id)
        assert_complete(recorded_trials, BUDGET)
        assert all(isinstance(trial.outcome, Timed) for trial in recorded_trials)
        assert_computes(database, report.job.tasks[0].kernel, tmp_path)
        wait_until_joined(logs[1], processes[1], times=2)
        notices = [outdated.connection.recv() for _ in range(2)]
        assert [type(notice) for notice in notices] == [FleetReady, FleetRefused]
        assert f"worker outdated has protocol 0 (needed is {PROTOCOL})" in notices[1].message
        assert not any(lane.startswith("outdated/") for lane in seen)
        with database.read() as session:
            machines = {machine.host: machine for machine in workers.list_all(session)}
        assert set(machines) == {"one", "two", socket.gethostname()}
        assert machines["one"].state == workers.ACTIVE and machines["one"].lanes[0][
            "name"
        ].startswith("one/")
    finally:
        database.close()
        outdated.stop(grace_s=30)
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(timeout=60)


@pytest.mark.long
@pytest.mark.xdist_group("fleet")
@pytest.mark.timeout(600)
def test_a_restarted_head_costs_only_what_was_in_flight(head: Head, tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    process = worker(head.address, "one", log)
    restarted = False

    def observe(progress: Progress) -> None:
        nonlocal restarted
        if (
            isinstance(progress, TrialRecorded)
            and not restarted
            and len(recorded(database, job_id)) >= BUDGET // 4
        ):
            restarted = True
            head.kill()
            head.start()

    database = open_in(tmp_path)
    try:
        wait_until_joined(log, process)
        job_id = queue_job(database, ["matmul:M=48,N=40,K=32"], trials=BUDGET)
        options = OrchestratorOptions(
            artifacts=tmp_path / "artifacts", limits=QUICK, address=head.address
        )
        report = run_job(database, job_id, options, observer=observe)
        assert restarted and report.job.state == jobs.SUCCEEDED, report.job.error
        recorded_trials = recorded(database, job_id)
        assert_complete(recorded_trials, BUDGET)
        assert all(isinstance(trial.outcome, Timed) for trial in recorded_trials)
        wait_until_joined(log, process, times=2)
    finally:
        database.close()
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


@pytest.mark.long
@pytest.mark.xdist_group("fleet")
@pytest.mark.timeout(400)
def test_a_job_waits_for_the_first_worker_and_says_so(head: Head, tmp_path: Path) -> None:
    """The head is restarted meanwhile."""
    database = open_in(tmp_path)
    job_id = queue_job(database, ["matmul:M=48,N=40,K=32"], trials=8)
    options = OrchestratorOptions(
        artifacts=tmp_path / "artifacts", limits=QUICK, address=head.address
    )
    reports: list[JobReport] = []
    runs = threading.Thread(target=lambda: reports.append(run_job(database, job_id, options)))
    runs.start()
    processes = []
    try:
        wait_for_notes(database, job_id, 1)
        head.kill()
        head.start()
        wait_for_notes(database, job_id, 1)
        processes.append(worker(head.address, "late", tmp_path / "late.log"))
        runs.join(timeout=250)
        assert [report.job.state for report in reports] == [jobs.SUCCEEDED]
        assert_complete(recorded(database, job_id), 8)
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
        with database.write() as session:
            if jobs.get(session, job_id).state == jobs.RUNNING:
                jobs.request_cancel(session, job_id)
        runs.join(timeout=60)
        database.close()


def wait_for_notes(database: Database, job_id: str, count: int) -> None:
    deadline, notices = time.monotonic() + 100, 0
    while notices < count:
        with database.read() as session:
            said = [
                event.data["text"]
                for event in events.after(session, job_id, 0)
                if event.kind == "note"
            ]
        notices = sum("waiting for a worker of this target to join" in str(text) for text in said)
        assert time.monotonic() < deadline, said
        time.sleep(0.2)


@pytest.mark.long
@pytest.mark.xdist_group("fleet")
@pytest.mark.timeout(300)
def test_a_worker_without_the_token_does_not_join(cluster: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text(secrets.token_hex(32), encoding="ascii")
    stranger = worker(cluster, "stranger", tmp_path / "log", token=str(other))
    assert stranger.wait(timeout=250) == 1
    text = (tmp_path / "log").read_text()
    assert re.search("could not join", text) and other.read_text() not in text


def test_a_host_with_other_versions_is_refused_by_name() -> None:
    host = host_plan("old-machine", "127.0.0.1:1")
    assert mismatch(host, versions()) is None
    for name in ("apache-tvm", "tuner", "protocol", "ray"):
        text = mismatch(replace(host, versions={**host.versions, name: "0.1"}), versions())
        assert (
            text is not None
            and "old-machine" in text
            and f"{name} 0.1 (needed is {versions()[name]})" in text
        )
