"""`kill -9` of the orchestrator in the middle of a job, several times: what was
recorded stays, it ends with its full budget."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.fleet_job import open_in, queue_job
from tests.support.job_rows import rows
from tuner.db import events, jobs, trials
from tuner.db.engine import Database

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(175)]

ROOT = Path(__file__).resolve().parents[2]
BUDGET = 30
KILLS = 3


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_in(tmp_path)
    yield opened
    opened.close()


def start(directory: Path, job_id: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.fleet_job", str(directory), job_id]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def wait_for(database: Database, job_id: str, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while len(rows(database, job_id)) < count:
        assert process.poll() is None, "the job ended before it could be killed"
        assert time.monotonic() < deadline, f"{count} trials were not recorded in time"
        time.sleep(0.02)


@pytest.mark.long
def test_killed_at_random_moments_a_job_loses_and_repeats_nothing(
    database: Database, tmp_path: Path
) -> None:
    rng = random.Random(7)
    job_id = queue_job(database, ["matmul:M=40,N=48,K=56"], trials=BUDGET, strategy="annealing")
    orphans: list[psutil.Process] = []
    before: dict[int, tuple[object, ...]] = {}
    for kill in range(KILLS):
        process = start(tmp_path, job_id)
        wait_for(database, job_id, len(before) + rng.randint(1, 4), process)
        time.sleep(rng.random() * 0.5)
        orphans += psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.communicate()
        now = rows(database, job_id)
        assert {number: now[number] for number in before} == before, (
            f"kill {kill} changed what was recorded"
        )
        before = now
    assert len(before) < BUDGET
    last = start(tmp_path, job_id)
    output, _ = last.communicate(timeout=120)
    assert (last.returncode, output.strip()) == (0, jobs.SUCCEEDED)
    final = rows(database, job_id)
    assert sorted(final) == list(range(BUDGET))
    assert {number: final[number] for number in before} == before
    assert_once(database, job_id)
    _, alive = psutil.wait_procs(orphans, timeout=20)
    assert alive == [], "processes of a killed orchestrator outlived it"


def assert_once(database: Database, job_id: str) -> None:
    """No config was measured under two numbers, every trial has one event, and the
    counters agree."""
    with database.read() as session:
        recorded_trials = trials.of_task(session, job_id)
        kinds = [event.kind for event in events.after(session, job_id, 0)]
        job = jobs.get(session, job_id)
    configs = [tuple(sorted(trial.config.items())) for trial in recorded_trials]
    assert len(set(configs)) == BUDGET
    assert kinds.count("trial") == BUDGET
    assert job.tasks[0].trials_done == BUDGET and job.tasks[0].kernel is not None
