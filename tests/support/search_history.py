"""Searches that a database remembers."""

from __future__ import annotations

import numpy as np

from tests.support.database_samples import ManualClock
from tests.support.targets import ZEN5
from tuner.cost_model.cuda.history import PRICED
from tuner.cost_model.cuda.resources import COLUMNS
from tuner.cost_model.cuda.terms import COSTS, TERM_NAMES
from tuner.cost_model.features import ESTIMATE
from tuner.cost_model.model import Features
from tuner.db import jobs, leases, targets, trials, workloads
from tuner.db.engine import Database
from tuner.db.jobs import Job
from tuner.measure.outcome import Conditions, Failed, FailureKind, Outcome, Timed, Trial
from tuner.spaces.by_target import space_of
from tuner.target.target import Target
from tuner.workers.backends.table import backend_of
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


def gpu_seconds(description: Features) -> np.ndarray:
    """A made-up GPU, on which copies to shared memory and empty multiprocessors cost more
    than the round costs say, and large register tiles nothing."""
    costs = dict(zip(TERM_NAMES, COSTS, strict=True)) | {
        "operand_not_shared": 3.0,
        "tile_operands": 0.0,
        "tile_depth": 1.0,
        "idle_multiprocessors": 1.0,
    }
    seconds: np.ndarray = 1e-5 * np.exp2(
        description[:, COLUMNS:PRICED] @ np.array([*costs.values()])
    )
    return seconds


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
    space = space_of(parse_spec(spec), machine, threads)
    points = np.unique(space.space.sample(np.random.default_rng(1), count), axis=0)
    rows = backend_of(machine).transfer.featurizer(space)(points)
    seconds = gpu_seconds(rows) if machine.kind == "cuda" else [seconds_of(row) for row in rows]
    with database.write() as session:
        for number, (point, took_s) in enumerate(zip(points, seconds, strict=True), 1):
            outcome: Outcome = Failed(kind=FailureKind.BUILD_ERROR, message="no")
            if number % 10:
                conditions = Conditions(lane="cpu:1", isolation="none")
                outcome = Timed(
                    samples_s=(float(took_s),),
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
