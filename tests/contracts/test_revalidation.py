"""Kernels after a change of compiler or machine, the same on both databases: marked,
queued once, timed from what is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.database_samples import sample_kernel, sample_target
from tuner.db import (
    artifacts,
    jobs,
    kernels,
    leases,
    promotions,
    targets,
    trials,
    workers,
    workloads,
)
from tuner.db.engine import Database
from tuner.db.jobs import Job, NewJob
from tuner.measure.outcome import Conditions, Timed, Trial
from tuner.spaces.core.space import Config
from tuner.workers.jobs.kernel_cache import given_configs, known_kernel
from tuner.workers.jobs.revalidation import FEW, IDLE_PRIORITY, TASKS, note_change, queue
from tuner.workload.spec import to_document, workload_from_params

CONDITIONS = Conditions(lane="cpu:1", isolation="none")
DIGEST = "ab" * 32
NOW = {"apache-tvm": "2", "apache-tvm-ffi": "2", "numpy": "9"}


@pytest.fixture
def database(database: Database) -> Database:
    """One that knows a machine."""
    with database.write() as session:
        targets.remember(session, sample_target())
    return database


def machine(versions: dict[str, str], target: str | None = None) -> workers.NewWorker:
    key = target or sample_target().key
    return workers.NewWorker(
        id="here", host="here", target=key, isolation=None, lanes=[], versions=versions
    )


def joined(database: Database, new: workers.NewWorker) -> tuple[Job, ...]:
    """The jobs that a machine's joining queued."""
    assert new.target is not None
    with database.write() as session:
        before = note_change(session, new)
        workers.join(session, new)
        made = queue(session, new.target, before)
        return tuple(jobs.get(session, job_id) for job_id in made)


def tuned(database: Database, extent: int = 16, *, kind: str = jobs.TUNE, count: int = 8) -> str:
    """The id of a kernel that the last of `count` trials of a job became; the later a
    trial, the faster."""
    workload = workload_from_params("matmul", {"M": extent, "N": 8, "K": 4})
    with database.write() as session:
        target = sample_target().key
        key = workloads.remember(session, workload, to_document(workload))
        made, _ = jobs.create(
            session, NewJob(workloads=(key,), target=target, threads=1, trials=count, kind=kind)
        )
        _, lease = leases.claim(session, made.id, owner="test")
        for number in range(count):
            outcome = Timed(
                samples_s=(1e-3 / (number + 1),),
                max_rel_error=0.0,
                conditions=CONDITIONS,
                artifact=f"{number:064x}",
            )
            trials.record(
                session, lease, Trial(number=number, config=config(number), outcome=outcome)
            )
        artifacts.remember(session, sha256=DIGEST, size_bytes=1, kind="library")
        sample = sample_kernel(session)
        names = ("median_s", "ci95_s", "gflops", "roofline_fraction", "max_rel_error", "verified")
        new = promotions.NewKernel(
            workload=key, target=target, threads=1, artifact=DIGEST, schedule={},
            default_median_s=None, versions={},
            trial=count - 1, config=config(count - 1), **{name: getattr(sample,
            name) for name in names},
        )  # fmt: skip
        kernel = promotions.promote(session, new, lease=lease)
        leases.finish(session, lease, "succeeded")
    return kernel.id


def config(number: int) -> Config:
    return {"tile": (number, 8)} if number else {}


def test_the_same_compiler_changes_nothing(database: Database) -> None:
    kernel = tuned(database)
    assert joined(database, machine(NOW)) == ()
    assert joined(database, machine({**NOW, "numpy": "10"})) == ()
    with database.read() as session:
        assert kernels.get(session, kernel).stale is None


def test_another_compiler_marks_the_kernels_and_has_them_timed_once(database: Database) -> None:
    kernel = tuned(database)
    joined(database, machine({**NOW, "apache-tvm": "1"}))
    (job,) = joined(database, machine(NOW))
    assert (job.kind, job.priority, len(job.tasks)) == (jobs.REVALIDATE, IDLE_PRIORITY, 1)
    with database.read() as session:
        stored = kernels.get(session, kernel)
        assert (
            stored.stale == "apache-tvm was 1, is 2" and stored.state == "promoted"
        )  # and is served meanwhile
        assert known_kernel(session, job, job.tasks[0]) is None
    assert joined(database, machine(NOW)) == ()  # the job is there already
    with database.write() as session:
        kernels.mark_validated(session, kernel)
    with database.read() as session:
        answer = known_kernel(session, job, job.tasks[0])
        assert answer is not None and answer.id == kernel
    with database.write() as session:
        jobs.request_cancel(session, job.id)
    assert joined(database, machine(NOW)) == ()


def test_the_best_few_are_timed_again(database: Database) -> None:
    tuned(database)
    joined(database, machine({**NOW, "apache-tvm": "1"}))
    (job,) = joined(database, machine(NOW))
    assert (
        given_configs(database, job, job.tasks[0])
        == [config(number) for number in (7, 6, 5, 4)][:FEW]
    )


def test_another_machine_tries_what_the_one_before_found(database: Database) -> None:
    tuned(database)
    joined(database, machine(NOW))
    other = replace(sample_target(), key="cd" * 32, name="the same, upgraded")
    with database.write() as session:
        targets.remember(session, other)
    (job,) = joined(database, machine(NOW, other.key))
    assert (job.target, job.kind) == (other.key, jobs.REVALIDATE)
    assert given_configs(database, job, job.tasks[0])[0] == config(7)
    assert joined(database, machine(NOW, other.key)) == ()


def test_a_kernel_that_was_only_prepared_stays_one(database: Database) -> None:
    tuned(database, kind=jobs.PREPARE, count=2)
    joined(database, machine({**NOW, "apache-tvm": "1"}))
    (job,) = joined(database, machine(NOW))
    assert job.kind == jobs.PREPARE and given_configs(database, job, job.tasks[0]) == [config(1)]


@pytest.mark.slow
def test_many_kernels_are_few_jobs(database: Database) -> None:
    for extent in range(16, 16 + TASKS + 2):
        tuned(database, extent, count=1)
    joined(database, machine({**NOW, "apache-tvm": "1"}))
    assert [len(job.tasks) for job in joined(database, machine(NOW))] == [TASKS, 2]
