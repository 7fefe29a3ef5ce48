"""Steps in the life of a job, of a model's too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from sqlalchemy import update

from tests.integration.failpoints.step import (
    SPEC,
    Step,
    counted,
    held,
    in_state,
    only_job,
    queued,
    running,
)
from tests.support.database_samples import ManualClock, sample_kernel
from tests.support.fleet_job import QUICK
from tests.support.targets import host_target
from tuner.app.jobs.abandoned import take_back
from tuner.app.jobs.lifecycle import requeue
from tuner.app.jobs.retention import Keep, prune
from tuner.db import jobs, leases, promotions, targets
from tuner.db.engine import Database
from tuner.db.tables import ArtifactRow, EventRow, IdempotencyRow, JobRow, TaskRow
from tuner.export.artifacts import ArtifactStore
from tuner.models.description import Measurement
from tuner.models.workloads import ModelWorkload
from tuner.workers.jobs import model_jobs as models
from tuner.workers.jobs.fleet_cache import FleetCache
from tuner.workers.jobs.job_run import JobRun
from tuner.workers.jobs.kernel_cache import unanswered
from tuner.workers.jobs.options import Interruption, OrchestratorOptions
from tuner.workers.jobs.progress import unobserved
from tuner.workload.spec import parse_spec


def job_run(database: Database, interruption: Interruption | None = None) -> JobRun:
    with database.write() as session:
        job, lease = leases.claim(session, only_job(database), owner="step", take_over=True)
    options = OrchestratorOptions(artifacts=Path("unused"), limits=QUICK)
    return JobRun(
        database,
        job,
        lease,
        FleetCache(options, on_hosts=lambda hosts: None),
        options,
        unobserved,
        lambda: interruption,
    )


# A cancelled job is queued again.


def cancelled(database: Database, folder: Path) -> None:
    queued(database, folder)
    with database.write() as session:
        jobs.request_cancel(session, only_job(database))


def act_requeue(database: Database, folder: Path) -> None:
    requeue(database, only_job(database))


# A job that a dead process held, and one that its orchestrator gives back.


def act_take_back(database: Database, folder: Path) -> None:
    with database.write() as session:  # the holder was a process of this machine
        session.execute(
            update(JobRow).where(JobRow.state == jobs.RUNNING).values(lease_owner="step")
        )
    take_back(database, owner="step")


def act_release(database: Database, folder: Path) -> None:
    job_run(database, Interruption.RELEASE)._stopped()


# A workload whose kernel is known is answered without measuring.


def kernel_known(database: Database, folder: Path) -> None:
    queued(database, folder)
    workload = parse_spec(SPEC)
    with database.write() as session:
        session.execute(update(JobRow).values(settings={"improve": False}))
        session.execute(update(TaskRow).values(workload_key=workload.key))
        new = replace(sample_kernel(session), workload=workload.key, target=host_target().key)
        promotions.promote(session, new)


def act_known(database: Database, folder: Path) -> None:
    with database.write() as session:
        job, lease = leases.claim(session, only_job(database), owner="step", take_over=True)
    assert unanswered(database, lease, job) == []


# A model file's kernels.


def model_job(database: Database, folder: Path) -> None:
    with database.write() as session:
        target = targets.remember(session, host_target())
        jobs.create(
            session, jobs.NewJob(workloads=(), target=target, threads=1, trials=4, kind=jobs.MODEL)
        )


def act_model(database: Database, folder: Path) -> None:
    lease = held(database, "step")
    with database.read() as session:
        there = jobs.get(session, lease.job_id).tasks
    if not there:
        parts = [ModelWorkload(workload=parse_spec(SPEC), calls=2)]
        models._added(database, lease, parts, ArtifactStore(folder / "artifacts"), b"{}")


def act_library(database: Database, folder: Path) -> None:
    digest = ArtifactStore(folder / "artifacts").put(b"archive")
    figures = Measurement(median_s=1.0, ci95_s=(1.0, 1.0), max_rel_error=0.0, kernels={})
    delivered = models.Delivered(
        library=digest,
        library_bytes=7,
        signature=None,
        description=digest,
        description_bytes=7,
        measurement=figures,
    )
    models._note_library(database, held(database, "step"), delivered)


# What nobody needs any more goes.


def idempotent_long_ago(database: Database, folder: Path) -> None:
    then = replace(database, clock=ManualClock())
    queued(then, folder)
    with then.write() as session:
        job = jobs.get(session, only_job(then))
        new = jobs.NewJob(
            workloads=(job.tasks[0].workload,), target=job.target, threads=1, trials=1
        )
        jobs.create(session, new, idempotency=jobs.Idempotency(key="once", digest=""))


def act_prune(database: Database, folder: Path) -> None:
    prune(database, Keep(), ArtifactStore(folder / "artifacts"))


JOB_STEPS: Mapping[str, Step] = {
    "requeue": Step(prepare=cancelled, act=act_requeue, effects=in_state(jobs.QUEUED)),
    "take-back": Step(prepare=running, act=act_take_back, effects=in_state(jobs.QUEUED)),
    "release": Step(prepare=running, act=act_release, effects=in_state(jobs.QUEUED)),
    "known": Step(
        prepare=kernel_known,
        act=act_known,
        effects=lambda database: counted(database, EventRow.kind == "note", of=EventRow),
    ),
    "model": Step(
        prepare=model_job, act=act_model, effects=lambda database: counted(database, of=TaskRow)
    ),
    "library": Step(
        prepare=model_job,
        act=act_library,
        effects=lambda database: counted(database, of=ArtifactRow),
    ),
    "note": Step(
        prepare=model_job,
        act=lambda database, _: models._noted(
            database, only_job(database), "its kernels are ready"
        ),
        effects=lambda database: counted(database, EventRow.kind == "note", of=EventRow),
        again=2,
    ),
    "prune": Step(
        prepare=idempotent_long_ago,
        act=act_prune,
        effects=lambda database: 1 - counted(database, of=IdempotencyRow),
    ),
}
