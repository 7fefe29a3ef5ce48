"""Searches that a database remembers."""

from __future__ import annotations

import numpy as np

from tests.support.database_samples import ManualClock
from tests.support.targets import ZEN5
from tuner.cost_model.features import ESTIMATE, featurizer
from tuner.db import jobs, leases, targets, trials, workloads
from tuner.db.engine import Database
from tuner.db.jobs import Job
from tuner.measure.outcome import Conditions, Failed, FailureKind, Outcome, Timed, Trial
from tuner.spaces.by_target import cpu_space
from tuner.target.target import Target
from tuner.workload.spec import parse_spec, to_document


def queue(
    database: Database,
    *specs: str,
    threads: int = 1,
    claimed: bool = True,
    machine: Target = ZEN5,
) -> tuple[Job, leases.Lease | None]:
    with database.write() as session:
        keys = tuple(
            workloads.remember(session, parse_spec(spec), to_document(parse_spec(spec)))
            for spec in specs
        )
        target = targets.remember(session, machine)
        new = jobs.NewJob(workloads=keys, target=target, threads=threads, trials=100)
        job, _ = jobs.create(session, new)
    if not claimed:
        return job, None
    with database.write() as session:
        job, lease = leases.claim(session, job.id, owner="test")
    return job, lease


def seconds_of(features: np.ndarray) -> float:
    """A made-up machine on which the estimate is half of the truth."""
    return float(1e-3 * (1.0 + np.exp2(features[ESTIMATE])))


def search_past(
    database: Database,
    spec: str,
    clock: ManualClock,
    count: int = 60,
    threads: int = 1,
    machine: Target = ZEN5,
) -> tuple[Job, leases.Lease]:
    """A job whose trials are recorded."""
    job, lease = queue(database, spec, threads=threads, machine=machine)
    assert lease is not None
    space = cpu_space(parse_spec(spec), machine, threads)
    points = np.unique(space.space.sample(np.random.default_rng(1), count), axis=0)
    rows = featurizer(space)(points)
    with database.write() as session:
        for number, (point, row) in enumerate(zip(points, rows, strict=True), 1):
            outcome: Outcome = Failed(kind=FailureKind.BUILD_ERROR, message="no")
            if number % 10:
                conditions = Conditions(lane="cpu:1", isolation="none")
                outcome = Timed(
                    samples_s=(seconds_of(row),),
                    max_rel_error=0.0,
                    conditions=conditions,
                    artifact=f"{number:064x}",
                )
            trials.record(
                session,
                lease,
                Trial(number=number, config=space.space.config(point), outcome=outcome),
            )
    clock.advance(10.0)
    return job, lease
