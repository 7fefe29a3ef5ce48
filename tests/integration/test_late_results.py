"""Who was stopped past its time and goes on finds its results refused: an orchestrator
past its lease, a runner past its time."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.support.fleet_job import QUICK, open_in, queue_job, run_here
from tests.support.fleet_records import assert_complete, descendants, recorded
from tests.support.job_rows import rows
from tuner.db import events, jobs
from tuner.db.engine import Database
from tuner.measure.outcome import Timed
from tuner.tuning import TrialRecorded
from tuner.workers.jobs.progress import Progress, WorkerNotice

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]
BUDGET = 24
LEASE_S = 3.0


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_in(tmp_path)
    yield opened
    opened.close()


def wait_for_trials(
    database: Database, job_id: str, count: int, process: subprocess.Popen[str]
) -> None:
    deadline = time.monotonic() + 200
    while len(rows(database, job_id)) < count:
        assert process.poll() is None and time.monotonic() < deadline, (
            "the job ended, or stands still"
        )
        time.sleep(0.02)


def test_an_orchestrator_stopped_past_its_lease_can_write_nothing(
    database: Database, tmp_path: Path
) -> None:
    job_id = queue_job(database, ["matmul:M=48,N=40,K=32"], trials=BUDGET)
    url = f"sqlite:///{tmp_path}/fleet.db"
    command = [
        sys.executable,
        "-m",
        "tests.support.fleet_job",
        str(tmp_path),
        job_id,
        url,
        str(LEASE_S),
    ]
    stopped = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_for_trials(database, job_id, 4, stopped)
        stopped.send_signal(signal.SIGSTOP)  # its fleet goes on: results wait for it
        time.sleep(LEASE_S + 1.0)
        report = run_here(database, job_id, tmp_path)
        assert report.job.state == jobs.SUCCEEDED
        final = rows(database, job_id)
        stopped.send_signal(signal.SIGCONT)
        _, said = stopped.communicate(timeout=120)
    finally:
        stopped.kill()
        stopped.wait()
    assert stopped.returncode != 0 and "StaleLease" in said, said
    assert rows(database, job_id) == final and sorted(final) == list(range(BUDGET))
    with database.read() as session:
        kinds = [event.kind for event in events.after(session, job_id, 0)]
    assert (
        kinds.count("trial") == BUDGET
        and kinds.count("succeeded") == 1
        and kinds[-1] == "succeeded"
    )


def test_a_runner_stopped_past_its_deadline_is_replaced_and_its_result_refused(
    database: Database, tmp_path: Path
) -> None:
    stopped: list[psutil.Process] = []
    notices: list[str] = []
    done = 0

    def observe(progress: Progress) -> None:
        nonlocal done
        if isinstance(progress, WorkerNotice):
            notices.append(progress.message)
            for process in stopped:
                if process.is_running():
                    process.send_signal(signal.SIGCONT)  # it wakes up after it was given up
        if isinstance(progress, TrialRecorded):
            done += 1
            if done == 4:
                stopped.extend(descendants("ray::Runner")[:1])
                stopped[0].send_signal(signal.SIGSTOP)

    job_id = queue_job(database, ["matmul:M=48,N=40,K=32"], trials=BUDGET)
    report = run_here(
        database, job_id, tmp_path, limits=replace(QUICK, run_timeout_s=3.0), observer=observe
    )
    assert report.job.state == jobs.SUCCEEDED, report.job.error
    recorded_trials = recorded(database, job_id)
    assert_complete(recorded_trials, BUDGET)
    assert all(isinstance(trial.outcome, Timed) for trial in recorded_trials)
    assert any("gave no answer in time" in notice for notice in notices), notices
