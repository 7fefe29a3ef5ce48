"""`kill -9` in the middle of a model's job, of the command and of each process of the service:
nothing recorded is lost, the job ends right, and nothing is left behind."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.model_home import Document, ModelHome, Served
from tuner.db import jobs
from tuner.db.engine import open_database

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(400)]

TRIALS = 12  # for each of the three kernels, on average


@pytest.fixture
def home(tmp_path: Path) -> Iterator[ModelHome]:
    made = ModelHome(tmp_path)
    yield made
    made.close()


def searching(job: Document) -> bool:
    return bool(sum(task["trials_done"] for task in job["tasks"]) >= 4)


def promoting(job: Document) -> bool:
    return any(task["kernel"] for task in job["tasks"])


def linking(job: Document) -> bool:
    """All kernels are there: the model's library is in the making."""
    return bool(job["tasks"]) and all(task["state"] == "succeeded" for task in job["tasks"])


def kill_a_worker(service: Served) -> None:
    service.processes(called="ray::")[0].kill()


def kill_the_orchestrator(service: Served) -> None:
    service.processes(called="tuner.app.service.orchestrate")[0].kill()


def kill_the_server(service: Served) -> None:
    service.home.watch(service.process)
    service.process.kill()
    service.process.wait()


@pytest.mark.parametrize(
    ("moment", "kill"),
    [
        (promoting, kill_a_worker),
        (searching, kill_the_orchestrator),
        (linking, kill_the_server),
    ],
    ids=lambda step: step.__name__,
)
def test_a_models_job_goes_on_after_a_kill(
    home: ModelHome, moment: Callable[[Document], bool], kill: Callable[[Served], None]
) -> None:
    with home.served() as service:
        job = service.submit(trials=TRIALS, seconds=60)
        before = service.wait(job, moment)
        assert before["state"] == "running", "it ended before it could be killed"
        recorded = service.trials(job)
        kill(service)
        if service.process.poll() is None:
            assert_went_on(service, job, before, recorded)
    if service.process.returncode == -signal.SIGKILL:
        with home.served() as service:
            assert_went_on(service, job, before, recorded)
    home.assert_nothing_is_left()


def assert_went_on(
    service: Served, job: str, before: Document, recorded: dict[tuple[int, int], Any]
) -> None:
    after = service.succeeded(job)
    now = service.trials(job)
    assert {key: now.get(key) for key in recorded} == recorded
    assert len(now) <= TRIALS * len(after["tasks"])
    for task, was in zip(after["tasks"], before["tasks"], strict=True):
        assert task["kernel"] and was["kernel"] in (None, task["kernel"])
    service.assert_right(job)


def test_a_killed_command_is_continued_and_exported(home: ModelHome) -> None:
    directory = home.folder / "net"
    process = home.tune(directory, "--trials", str(TRIALS), "--seconds", "60")
    database = open_database(home.environment["TUNER_DB"])
    job = None
    while job is None or sum(task.trials_done for task in job.tasks) < 4:
        assert process.poll() is None, directory.with_suffix(".log").read_text()
        home.watch(process)
        with database.read() as session:
            listed = jobs.list_page(session).items
        job = listed[0] if listed else None
    process.kill()
    process.wait()
    home.run("resume", "last")
    with database.read() as session:
        after = jobs.get(session, job.id)
    database.close()
    assert after.state == jobs.SUCCEEDED
    assert sum(task.trials_done for task in after.tasks) <= TRIALS * len(after.tasks)
    again = home.tune(directory, "--trials", "1", "--seconds", "60")
    home.ended(again, directory.with_suffix(".log"))
    home.run("verify", str(directory))
    assert sorted(path.name for path in home.folder.glob(".net*")) == []
    home.assert_nothing_is_left()
