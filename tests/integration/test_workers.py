"""Jobs on a real Ray: one tuned end to end, and what is lost with each kind of worker
(nothing but the trials in flight)."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import psutil
import pytest

from tests.support.fleet_job import QUICK, open_in, queue_job, run_here
from tests.support.fleet_records import assert_complete, assert_computes, descendants, recorded
from tests.support.targets import host_target
from tuner.db import events, jobs, kernels, lanes, workloads
from tuner.db import workers as worker_rows
from tuner.db.engine import Database
from tuner.measure.outcome import Candidate, Failed, FailureKind, Timed
from tuner.tuning import TrialRecorded
from tuner.workers.fleet import machine
from tuner.workers.fleet.calibration import LEARNED
from tuner.workers.fleet.handle import Fleet, FleetError
from tuner.workers.fleet.messages import FleetPlan, Limits, Problem
from tuner.workers.fleet.ray_measurer import RayMeasurer
from tuner.workers.jobs.orchestrator import Orchestrator, OrchestratorOptions
from tuner.workers.jobs.progress import Progress, WorkerNotice
from tuner.workload.spec import parse_spec

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(170)]

SMALL = "matmul:M=48,N=40,K=32"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_in(tmp_path)
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither processes nor files outlive a fleet."""
    temporary = Path(tempfile.mkdtemp(prefix="fleet", dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    yield
    assert list(temporary.iterdir()) == []
    temporary.rmdir()
    deadline = time.monotonic() + 10
    while (left := psutil.Process().children(recursive=True)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


def test_a_job_ends_with_verified_kernels(database: Database, tmp_path: Path) -> None:
    job_id = queue_job(database, [SMALL, "matmul:M=31,N=17,K=23"], trials=8)
    report = run_here(database, job_id, tmp_path)
    assert report.job.state == jobs.SUCCEEDED and not report.unverified
    for task in report.job.tasks:
        assert_complete(recorded(database, job_id, task.position), 8)
        assert task.trials_done == 8 and task.space_size is not None and task.space_size > 8
        assert (
            set(task.elapsed_s) == {"total", "search", "build", "measure"}
            and task.elapsed_s["build"] > 0
        )
        assert task.stopped == "trials"
        assert task.kernel is not None
        with database.read() as session:
            kernel = kernels.get(session, task.kernel)
        assert kernel.verified and kernel.state == kernels.PROMOTED
        assert {"default"} < set(kernel.race)
    with database.read() as session:
        kinds = [event.kind for event in events.after(session, job_id, 0)]
        now = datetime.now(UTC)
        activities = {
            span.kind
            for span in lanes.timeline(session, since=now - timedelta(hours=1), until=now)
            if span.job == job_id
        }
        (here,) = worker_rows.list_all(session)
        calibrations = lanes.calibrations(session, here.id, str(here.lanes[0]["name"]))
    assert kinds.count("trial") == 16 and kinds.count("kernel") == 2 and kinds[-1] == "succeeded"
    assert {"build", "wait", "time"} <= activities
    assert here.isolation is not None and here.isolation.startswith("sealed"), (
        "what is in force, not what was asked for"
    )
    assert len(calibrations) >= LEARNED and all(
        10e-6 < calibration.median_s < 1.0 for calibration in calibrations
    )
    assert_computes(database, report.job.tasks[0].kernel, tmp_path)


def test_a_second_job_races_against_the_incumbent(database: Database, tmp_path: Path) -> None:
    first, second = (
        run_here(database, queue_job(database, [SMALL], trials=3), tmp_path) for _ in range(2)
    )
    assert first.job.state == second.job.state == jobs.SUCCEEDED
    kernel_ids = [report.job.tasks[0].kernel for report in (first, second)]
    with database.read() as session:
        workload = workloads.get(session, first.job.tasks[0].workload)
        promoted = kernels.find_promoted(session, workload.key, first.job.target, 1)
    assert promoted is not None and promoted.id == kernel_ids[1]
    assert promoted.id == kernel_ids[0] or promoted.previous == kernel_ids[0]


def test_a_kernel_on_every_core_takes_turns_with_building(
    database: Database, tmp_path: Path
) -> None:
    threads = len(os.sched_getaffinity(0))
    job_id = queue_job(database, [SMALL], trials=10, threads=threads)
    report = run_here(database, job_id, tmp_path)
    assert report.job.state == jobs.SUCCEEDED
    assert_complete(recorded(database, job_id), 10)
    with database.read() as session:
        now = datetime.now(UTC)
        spans = lanes.timeline(session, since=now - timedelta(hours=1), until=now)
    building = [(span.started_at, span.ended_at) for span in spans if span.kind == "build"]
    timing = [(span.started_at, span.ended_at) for span in spans if span.kind == "time"]
    assert building and timing
    assert [
        pair
        for pair in product(building, timing)
        if pair[0][0] < pair[1][1] and pair[1][0] < pair[0][1]
    ] == []


@pytest.mark.timeout(300)
def test_killed_workers_cost_no_trial(database: Database, tmp_path: Path) -> None:
    """Compiler, runner process, both actors, the driver and Ray's node are killed in
    turn, in the middle of the job.

    More trials lie between two kills than are ever in flight, so that some pass every
    worker slot after each.
    """
    apart = 12
    victims = [
        "tuner.workers.fleet.build_server",
        "tuner.measure.parent",
        "ray::Builder",
        "ray::Runner",
        "tuner.workers.fleet.driver",
        "raylet/raylet",
    ]
    notices: list[str] = []
    done = 0

    def observe(progress: Progress) -> None:
        nonlocal done
        if isinstance(progress, WorkerNotice):
            notices.append(progress.message)
        if isinstance(progress, TrialRecorded):
            done += 1
            if done % apart == 0 and victims:
                processes = descendants(victims.pop(0))
                assert processes, "the victim was not running"
                processes[0].kill()

    count = apart * (len(victims) + 1)
    job_id = queue_job(database, [SMALL], trials=count)
    report = run_here(database, job_id, tmp_path, observer=observe)
    assert victims == []
    assert report.job.state == jobs.SUCCEEDED
    recorded_trials = recorded(database, job_id)
    assert_complete(recorded_trials, count)
    assert all(isinstance(trial.outcome, Timed) for trial in recorded_trials)
    # Every trial needs the lane's runner. Of two builders the one that was killed may
    # have had nothing to do: nobody misses it.
    assert any(notice.startswith("cpu:") for notice in notices)
    assert sum("driver" in notice for notice in notices) >= 2, (
        "the driver was killed, and ended with its node"
    )


def test_what_never_builds_in_time_fails_the_job(database: Database, tmp_path: Path) -> None:
    job_id = queue_job(database, [SMALL], trials=3)
    report = run_here(database, job_id, tmp_path, limits=replace(QUICK, build_timeout_s=0.0006))
    kinds = {
        trial.outcome.kind
        for trial in recorded(database, job_id)
        if isinstance(trial.outcome, Failed)
    }
    assert kinds == {FailureKind.BUILD_TIMEOUT}
    assert report.unverified and report.job.state == jobs.FAILED
    assert report.job.error is not None and "0.003 s" in report.job.error


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def test_a_service_serves_cancels_and_gives_back(database: Database, tmp_path: Path) -> None:
    """One fleet for three jobs: one ends, one is cancelled from outside, one goes back
    when the service stops."""

    def state(job_id: str) -> str:
        with database.read() as session:
            return jobs.get(session, job_id).state

    ended, cancelled, released = (
        queue_job(database, [SMALL], trials=trials) for trials in (2, 5000, 5000)
    )
    options = OrchestratorOptions(artifacts=tmp_path / "artifacts", limits=QUICK)
    stop, errors = threading.Event(), list[str]()
    service = Orchestrator(database, host_target(), options)
    thread = threading.Thread(
        target=service.serve, args=(stop,), kwargs={"on_error": errors.append}
    )
    thread.start()
    try:
        wait_for(
            lambda: all(len(recorded(database, job_id)) >= 2 for job_id in (cancelled, released))
        )  # at once, on one fleet
        wait_for(lambda: state(ended) == jobs.SUCCEEDED)
        with database.write() as session:
            jobs.request_cancel(session, cancelled)
        wait_for(lambda: state(cancelled) == jobs.CANCELLED)
        left = len(recorded(database, released))
        wait_for(
            lambda: len(recorded(database, released)) >= left + 2
        )  # the other's end took nothing of it along
    finally:
        stop.set()
        thread.join(timeout=30)
    assert not thread.is_alive() and errors == []
    with database.read() as session:
        job = jobs.get(session, released)
    assert job.state == jobs.QUEUED and job.lease_owner is None
    numbers = [trial.number for trial in recorded(database, released)]
    assert len(set(numbers)) == len(
        numbers
    )  # what was in flight is missing between them: who resumes begins with it


@pytest.fixture
def fleet() -> Iterator[Callable[..., Fleet]]:
    started: list[Fleet] = []

    def start(limits: Limits, **options: str) -> Fleet:
        lanes_here = machine.plan_machine(machine.usable_nodes(), threads=1)
        plan = FleetPlan(
            lanes=lanes_here.lanes,
            builder_cores=lanes_here.builder_cores,
            alternates=lanes_here.alternates,
            limits=limits,
            storage="",
        )
        started.append(Fleet(plan, **options))
        started[0].start()
        started[0].wait_ready()
        return started[0]

    yield start
    for fleet in started:
        fleet.close()


def test_a_kernel_that_takes_too_long_costs_its_timeout_and_nothing_else(
    fleet: Callable[..., Fleet],
) -> None:
    running = fleet(Limits(run_timeout_s=1.5))
    target = host_target()
    endless = RayMeasurer(
        running,
        Problem(workload=parse_spec("matmul:M=2048,N=2048,K=1024"), target=target, threads=1),
    )
    endless.submit([Candidate(number=0)])
    (late,) = endless.results(timeout_s=60)
    assert isinstance(late.outcome, Failed) and late.outcome.kind is FailureKind.RUN_TIMEOUT
    assert late.measure_s < 1.5 + 1.0
    quick = RayMeasurer(running, Problem(workload=parse_spec(SMALL), target=target, threads=1))
    quick.submit([Candidate(number=0)])
    (trial,) = quick.results(timeout_s=60)
    assert isinstance(trial.outcome, Timed)
    assert_isolated(running)


def assert_isolated(running: Fleet) -> None:
    """Ray listens on loopback only, and nothing of the fleet but the runner's own
    parent may run on a lane's core."""
    if running.plan.alternates:
        return
    builders = set(running.plan.builder_cores)
    for process in psutil.Process().children(recursive=True):
        if "tuner.measure.parent" in " ".join(process.cmdline()):
            continue
        for thread in process.threads():
            assert os.sched_getaffinity(thread.id) <= builders, process.cmdline()
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                assert connection.laddr.ip in ("127.0.0.1", "::ffff:127.0.0.1", "::1"), connection


def test_a_fleet_without_a_compiler_says_why(fleet: Callable[..., Fleet]) -> None:
    with pytest.raises(FleetError, match="there is no LLVM"):
        fleet(Limits(), driver="tests.support.driver_without_compiler")
