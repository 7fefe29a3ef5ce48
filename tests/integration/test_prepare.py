"""Kernels made without a search: prepared for a lookup from a neighbour's schedule, and
known ones answered at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet_job import open_in, queue_job, run_here
from tests.support.live_service import options_for, serving
from tests.support.targets import host_target
from tuner.db import events, jobs, kernels, trials, workers
from tuner.db.engine import Database
from tuner.search.strategies import DEFAULT_STRATEGY
from tuner.workers.jobs.orchestrator import JobReport
from tuner.workers.jobs.presence import Presence
from tuner.workers.jobs.revalidation import FEW

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(175)]

TUNED = {"M": 48, "N": 40, "K": 32}
WANTED = {"M": 40, "N": 48, "K": 24}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_in(tmp_path)
    yield opened
    opened.close()


def requeued(database: Database, job_id: str, **settings: bool) -> str:
    """A job for the same workload with these settings."""
    with database.write() as session:
        job = jobs.get(session, job_id)
        keys = tuple(task.workload for task in job.tasks)
        new = jobs.NewJob(
            workloads=keys,
            target=job.target,
            threads=1,
            trials=3,
            strategy="random",
            settings=settings,
        )
        return jobs.create(session, new)[0].id


def kernel_of(database: Database, report: JobReport) -> kernels.Kernel:
    assert report.job.state == jobs.SUCCEEDED, report.job.error
    assert report.job.tasks[0].kernel is not None
    with database.read() as session:
        return kernels.get(session, report.job.tasks[0].kernel)


def test_a_lookup_is_prepared_from_its_neighbour_and_a_search_replaces_it(
    database: Database, tmp_path: Path
) -> None:
    spec = "matmul:" + ",".join(f"{name}={value}" for name, value in TUNED.items())
    first = kernel_of(
        database, run_here(database, queue_job(database, [spec], trials=12), tmp_path)
    )
    with serving(
        options_for(f"sqlite:///{tmp_path}/fleet.db", tmp_path, target=host_target())
    ) as service:
        client, request = service.client(), {"op": "matmul", "params": WANTED}
        near = client.lookup(request)
        assert (
            near.source == "neighbour"
            and near.kernel is not None
            and near.kernel.id == first.id
            and near.job is not None
        )
        prepared = kernel_of(database, run_here(database, near.job, tmp_path))
        with database.read() as session:
            recorded_trials = trials.of_task(session, near.job, 0)
        assert [bool(trial.config) for trial in recorded_trials] == (
            [False, True] if first.config else [False]
        )
        assert prepared.verified and prepared.workload != first.workload
        answer = client.lookup(request)
        assert answer.kernel is not None and (answer.kernel.id, answer.job) == (prepared.id, None)
        assert answer.source == ("neighbour" if prepared.config else "default")
        again = run_here(database, requeued(database, near.job, improve=False), tmp_path)
        assert again.job.tasks[0].trials_done == 3  # no search stood behind the prepared kernel
        searched = kernel_of(database, again)
        expected = "exact" if searched.id != prepared.id else answer.source
        assert client.lookup(request).source == expected


def test_without_a_neighbour_the_estimates_best_is_prepared(
    database: Database, tmp_path: Path
) -> None:
    with serving(
        options_for(f"sqlite:///{tmp_path}/fleet.db", tmp_path, target=host_target())
    ) as service:
        client, request = service.client(), {"op": "matmul", "params": WANTED}
        first = client.lookup(request)
        assert (first.source, first.kernel) == ("default", None) and first.job is not None
        prepared = kernel_of(database, run_here(database, first.job, tmp_path))
        with database.read() as session:
            recorded_trials = trials.of_task(session, first.job, 0)
        assert [bool(trial.config) for trial in recorded_trials] == [False, True]
        assert prepared.verified
        answer = client.lookup(request)
        assert answer.kernel is not None and answer.kernel.id == prepared.id
        assert answer.source == "default" and answer.loss == first.loss
        assert client.kernel(prepared.id).loss == answer.loss


def test_a_single_trial_is_that_of_the_estimates_best(database: Database, tmp_path: Path) -> None:
    job_id = queue_job(database, ["matmul:M=40,N=48,K=24"], trials=1, strategy=DEFAULT_STRATEGY)
    kernel = kernel_of(database, run_here(database, job_id, tmp_path))
    with database.read() as session:
        (trial,) = trials.of_task(session, job_id, 0)
    assert trial.config and kernel.verified
    assert kernel.default_median_s is not None and kernel.median_s <= kernel.default_median_s


def test_a_known_kernel_is_the_answer_unless_it_is_to_be_improved_or_timed_again(
    database: Database, tmp_path: Path
) -> None:
    job_id = queue_job(database, ["softmax:M=9,N=11"], trials=2)
    kernel = kernel_of(database, run_here(database, job_id, tmp_path))
    started = time.monotonic()
    report = run_here(database, requeued(database, job_id, improve=False), tmp_path)
    assert time.monotonic() - started < 2.0  # no worker was started
    assert kernel_of(database, report).id == kernel.id and report.job.tasks[0].trials_done == 0
    with database.read() as session:
        (note,) = [
            event.data for event in events.after(session, report.job.id, 0) if event.kind == "note"
        ]
    assert kernel.id in str(note["text"])
    with database.write() as session:
        kernels.mark_stale(session, kernel.target, "the compiler changed")
    assert (
        run_here(database, requeued(database, job_id, improve=False), tmp_path)
        .job.tasks[0]
        .trials_done
        == 3
    )
    assert (
        run_here(database, requeued(database, job_id, improve=True), tmp_path)
        .job.tasks[0]
        .trials_done
        == 3
    )


def test_after_another_compiler_the_best_few_are_raced_and_nothing_is_searched(
    database: Database, tmp_path: Path
) -> None:
    kernel = kernel_of(
        database,
        run_here(database, queue_job(database, ["matmul:M=48,N=40,K=32"], trials=12), tmp_path),
    )
    with (
        database.write() as session
    ):  # as if the machine had been seen last with an earlier compiler
        (here,) = workers.list_all(session)
        rows = {
            name: getattr(here, name) for name in ("id", "host", "target", "isolation", "lanes")
        }
        workers.join(
            session, workers.NewWorker(versions={**here.versions, "apache-tvm": "0.1"}, **rows)
        )
    presence = Presence(database, host_target(), ())
    presence.join()
    presence.leave()
    with database.read() as session:
        assert "apache-tvm was 0.1" in (kernels.get(session, kernel.id).stale or "")
        (job,) = jobs.list_page(session, state=("queued",)).items
    report = run_here(database, job.id, tmp_path)
    again = kernel_of(database, report)
    assert (job.kind, again.stale, again.verified) == ("revalidate", None, True)
    assert 2 <= report.job.tasks[0].trials_done <= 1 + FEW
    served = [kernel.id for kernel in promoted(database)]
    assert served == [again.id]


def promoted(database: Database) -> tuple[kernels.Kernel, ...]:
    with database.read() as session:
        return kernels.list_page(session).items
