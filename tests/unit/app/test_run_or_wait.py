"""A command whose job a service claims first waits for it, and runs it where the service ends."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import pytest

from tests.support.database_samples import add_job
from tests.support.live_service import wait_for
from tuner.app.jobs import waiting
from tuner.app.jobs.waiting import run_or_wait
from tuner.db import jobs, leases
from tuner.db.engine import Database
from tuner.workers.jobs.options import Interruption, JobReport
from tuner.workers.jobs.progress import Progress, WorkerNotice

SERVICE, COMMAND = "elsewhere:1", "here:2"


class Command:
    """What a command does with a job that it has queued."""

    def __init__(self, database: Database, job: str) -> None:
        self.database, self.job = database, job
        self.notices: list[Progress] = []
        self.interruption: Interruption | None = None

    def attempt(self) -> JobReport:
        with self.database.write() as session:
            _, lease = leases.claim(session, self.job, owner=COMMAND)
            return JobReport(job=leases.finish(session, lease, jobs.FAILED, error="by the command"))

    def run(self) -> JobReport:
        return run_or_wait(
            self.attempt,
            self.database,
            self.job,
            observer=self.notices.append,
            interrupt=lambda: self.interruption,
        )

    @contextmanager
    def running(self) -> Iterator[Future[JobReport]]:
        """Once it has said that it waits."""
        with ThreadPoolExecutor(1) as threads:
            report = threads.submit(self.run)
            wait_for(lambda: self.notices)
            yield report


@pytest.fixture
def command(database: Database, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setattr(waiting, "POLL_S", 0.01)
    return Command(database, add_job(database))


def claimed(command: Command, lifetime_s: float = 30.0) -> leases.Lease:
    with command.database.write() as session:
        lifetime = timedelta(seconds=lifetime_s)
        return leases.claim(session, command.job, owner=SERVICE, lifetime=lifetime)[1]


def finish(command: Command, lease: leases.Lease, state: str) -> None:
    with command.database.write() as session:
        leases.finish(session, lease, state)


def test_a_job_that_nobody_has_claimed_is_run(command: Command) -> None:
    assert command.run().job.error == "by the command" and command.notices == []


def test_the_service_ends_the_job(command: Command) -> None:
    lease = claimed(command)
    with command.running() as report:
        finish(command, lease, jobs.SUCCEEDED)
        assert report.result(timeout=20).job.state == jobs.SUCCEEDED
    (notice,) = command.notices
    assert isinstance(notice, WorkerNotice) and SERVICE in notice.message


def test_the_service_dies(command: Command) -> None:
    claimed(command, lifetime_s=0.5)
    with command.running() as report:
        assert report.result(timeout=20).job.error == "by the command"


def test_the_user_stops_it(command: Command) -> None:
    lease = claimed(command)
    with command.running() as report:
        command.interruption = Interruption.CANCEL

        def is_cancelling() -> bool:
            with command.database.read() as session:
                return jobs.get(session, command.job).state == jobs.CANCELLING

        wait_for(is_cancelling)
        finish(command, lease, jobs.CANCELLED)
        assert report.result(timeout=20).job.state == jobs.CANCELLED
