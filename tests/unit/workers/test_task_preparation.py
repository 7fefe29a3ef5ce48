"""Tasks prepared ahead of their turn: the same search, and lanes that know what comes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import new_database
from tests.support.task_preparation import preparing
from tuner.db import jobs, leases
from tuner.db.engine import Database
from tuner.errors import UsageError
from tuner.models.tuning.task_scheduler import kind_of
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Config
from tuner.workers.jobs.task import Tally, rest_of
from tuner.workload.spec import parse_spec

SPECS = tuple(parse_spec(spec).spec for spec in ("matmul:M=4,N=8,K=4", "matmul:M=4,N=4,K=8"))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = new_database(tmp_path / "tuner.db")
    yield opened
    opened.close()


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def test_a_search_prepared_ahead_is_the_search_that_it_would_have_been(
    database: Database, background: ThreadPoolExecutor
) -> None:
    """With what the task before it has found meanwhile among its first points."""
    proposed: list[list[Config]] = []
    for ahead in (False, True):
        preparation, job, channel = preparing(database, background, *SPECS)
        first, second = job.tasks
        with preparation.prepared(first, job, second if ahead else None) as run:
            assert channel.announced == [*SPECS[: 1 + ahead]]
            best = run.space.space.config(run.searcher.ask(7)[-1])
            preparation.best[0] = kind_of(run.problem.workload.expression), best
        with preparation.prepared(second, job) as run:
            proposed.append([run.space.space.config(point) for point in run.searcher.ask(12)])
    assert proposed[0] == proposed[1]
    without, job, _ = preparing(database, background, *SPECS)
    with without.prepared(job.tasks[1], job) as run:
        assert [run.space.space.config(point) for point in run.searcher.ask(12)] != proposed[0]


def test_the_seconds_of_rounds_add_up(database: Database, background: ThreadPoolExecutor) -> None:
    preparation, job, _ = preparing(database, background, *SPECS)
    with database.write() as session:
        leases.note_task(session, preparation.lease, 0, elapsed_s={"total": 7.0, "search": 2.0})
    with preparation.prepared(job.tasks[0], job) as run:
        assert Tally(run.task, run.recorded).elapsed(3.0)["total"] == 10.0


def test_what_a_killed_run_has_had_of_a_budget_is_gone_until_it_is_given_again(
    database: Database, background: ThreadPoolExecutor
) -> None:
    preparation, job, _ = preparing(database, background, *SPECS)

    def left_s() -> list[float | None]:
        with database.read() as session:
            now = replace(jobs.get(session, job.id), seconds=60.0)
        return [rest_of(now, task).seconds for task in now.tasks]

    with database.write() as session:
        leases.note_task(session, preparation.lease, 1, elapsed_s={"total": 25.0})
        leases.release(session, preparation.lease)
    assert left_s() == [60.0, 35.0]
    with database.write() as session:
        jobs.resume(session, job.id)  # of a queued job, without a new budget
    assert left_s() == [60.0, 35.0]
    with database.write() as session:
        jobs.request_cancel(session, job.id)
        jobs.resume(session, job.id)
    assert left_s() == [60.0, 60.0]
    with database.write() as session:
        _, lease = leases.claim(session, job.id, owner="next")
        leases.note_task(session, lease, 1, elapsed_s={"total": 95.0})
        leases.release(session, lease)
    assert left_s() == [60.0, 0.1]
    with database.write() as session:
        jobs.resume(session, job.id, seconds=60.0)
    assert left_s() == [60.0, 60.0]


def test_a_single_trial_is_the_first_of_a_whole_search(
    database: Database, background: ThreadPoolExecutor
) -> None:
    tried: list[list[Config]] = []
    for single in (False, True):
        preparation, job, _ = preparing(database, background, *SPECS)
        if single:
            preparation.look_ahead(job.tasks[1], single=True)
        for task in job.tasks:
            with preparation.prepared(task, job, single=single) as run:
                tried.append([run.space.space.config(point) for point in run.searcher.ask(1)])
    assert tried[:2] == tried[2:]


def test_what_cannot_be_prepared_ahead_says_so_when_its_turn_has_come(
    database: Database, background: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    preparation, job, _ = preparing(database, background, *SPECS)
    first, second = job.tasks

    def refused(workload: Any, *others: Any) -> Any:
        if workload.spec == SPECS[1]:
            raise UsageError("no space")
        return space_of(workload, *others)

    monkeypatch.setattr("tuner.workers.jobs.task_preparation.space_of", refused)
    with preparation.prepared(first, job, second) as run:
        assert len(run.searcher.ask(2)) == 2
    with pytest.raises(UsageError, match="no space"), preparation.prepared(second, job):
        pass


def test_a_race_waits_for_what_is_prepared_ahead_where_it_would_notice(
    database: Database, background: ThreadPoolExecutor
) -> None:
    """Beside a race of one, on a lane of its own, it goes on."""
    for contestants, alternates, waits in ((1, False, False), (2, False, True), (1, True, True)):
        preparation, job, channel = preparing(database, background, *SPECS)
        channel.plan = replace(channel.plan, alternates=alternates)
        begin = threading.Event()
        background.submit(begin.wait, 10.0)  # before the next task is prepared
        preparation.look_ahead(job.tasks[1], announced=False)
        resting = threading.Thread(target=preparation.rest, args=[contestants])
        resting.start()
        resting.join(0.02 if waits else 10.0)
        assert resting.is_alive() == waits
        begin.set()
        resting.join(10.0)
        assert not resting.is_alive() and channel.announced == []
        with preparation.prepared(job.tasks[1], job) as run:
            assert len(run.searcher.ask(2)) == 2


def test_a_kept_search_goes_on_and_the_latest_is_known(
    database: Database, background: ThreadPoolExecutor
) -> None:
    preparation, job, channel = preparing(database, background, *SPECS)
    first, second = job.tasks
    asked: list[bytes] = []
    for task in (first, second, first):
        with preparation.prepared(task, job) as run:
            preparation.keep(run)
            if task is first:
                asked += map(bytes, run.searcher.ask(5))
    assert len({*asked}) == 10
    assert [*preparation.searched] == [second.position, first.position]
    with preparation.prepared(second, job, first):  # which is kept: nothing is made ahead
        assert channel.announced == [SPECS[0], SPECS[1], SPECS[0], SPECS[1]]
    preparation.forget(first)
    assert [*preparation.searched] == [second.position]
