"""Fill the database over which the load of the service is measured.

It has many promoted kernels, each of a workload of its own, and jobs with many trials.
Rows are made in bulk: the trials of one job in Python, those of the others as copies of
them, so that a million take a minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import func, insert, literal, select, update

from tuner.db import artifacts, events, jobs, keys, leases, targets, workloads
from tuner.db.engine import Database, Session
from tuner.db.tables import JobRow, KernelRow, TaskRow, TrialRow, WorkloadRow
from tuner.target.detect import detect_cpu
from tuner.workload.spec import to_document, workload_from_params
from tuner.workload.workload import Workload

KNOWN = 256  # kernels that are asked for, of matmuls M×64×64
BATCH = 5000
JOBS = 40  # that share the trials: 25,000 each, which is hours of measuring
KINDS = ("build_error", "run_timeout", "wrong_answer", "illegal_schedule")
NO_LIBRARY = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What the clients need to know of the database."""

    token: str  # of a key that may read and submit
    jobs: tuple[str, ...]  # those with the trials
    kernels: int
    trials: int


def known_workloads() -> list[Workload]:
    return [
        workload_from_params("matmul", {"M": 16 + number, "N": 64, "K": 64})
        for number in range(KNOWN)
    ]


def fill(database: Database, *, kernels: int, trials: int) -> Filled:
    """Bring an empty database to so many kernels and trials, and make a key.

    A database that has them is left as it is.
    """
    with database.write() as session:
        token = keys.create(session, name="load", scopes=["submit"], quota=10**6)[1]
        # Another machine's limits are not needed, and this one's would be measured first.
        target = targets.remember(session, detect_cpu())
        artifacts.remember(session, sha256=NO_LIBRARY, size_bytes=1, kind="library")
        have_kernels = session.scalars(select(func.count()).select_from(KernelRow)).one()
        have_trials = session.scalars(select(func.count()).select_from(TrialRow)).one()
        owner = token.split("_")[1]
        session.execute(update(JobRow).values(owner=owner))
    if have_kernels < kernels:
        _add_kernels(database, target, have_kernels, kernels)
    if have_trials < trials:
        _add_trials(database, target, owner, trials)
    with database.read() as session:
        finished = session.scalars(
            select(JobRow.id).where(JobRow.state == jobs.SUCCEEDED).order_by(JobRow.id)
        ).all()
    if database.engine.dialect.name == "postgresql":
        with database.engine.execution_options(
            isolation_level="AUTOCOMMIT"
        ).connect() as connection:
            # What autovacuum does within a minute of such a load.
            connection.exec_driver_sql("VACUUM ANALYZE")
    return Filled(
        token=token,
        jobs=tuple(finished),
        kernels=max(kernels, have_kernels),
        trials=max(trials, have_trials),
    )


def _add_kernels(database: Database, target: str, have: int, count: int) -> None:
    looked_up = known_workloads() if have == 0 else []
    with database.write() as session:
        for workload in looked_up:
            workloads.remember(session, workload, to_document(workload))
        now = session.now()
    row: dict[str, Any] = {
        "threads": 1,
        "median_s": 1e-3,
        "ci95_low_s": 9e-4,
        "ci95_high_s": 1.1e-3,
        "gflops": 1.0,
        "race": {},
    }
    row |= {
        "state": "promoted",
        "target_key": target,
        "artifact": NO_LIBRARY,
        "max_rel_error": 0.0,
        "verified": True,
    }
    row |= {
        "validated_at": now,
        "created_at": now,
        "op": "matmul",
        "config": {"sketch": "tiles", "tile": [4, 8]},
    }
    row |= {"versions": {"tvm": "0.27"}, "schedule": {"trace": []}}
    same = {
        "op": "matmul",
        "name": "matmul",
        "spec": "matmul",
        "numerics": "strict",
        "document": {},
        "created_at": now,
    }
    for start in range(have, count, BATCH):
        own = [workload.key for workload in looked_up] if start == 0 else []
        filler = [f"{number:064x}" for number in range(start, min(start + BATCH, count) - len(own))]
        with database.write() as session:
            if filler:
                session.execute(insert(WorkloadRow), [same | {"key": key} for key in filler])
            session.execute(
                insert(KernelRow),
                [row | {"id": f"k_{key[-24:]}", "workload_key": key} for key in own + filler],
            )


def _add_trials(database: Database, target: str, owner: str, count: int) -> None:
    """One transaction a job, so that what was interrupted goes on with the next one."""
    each, columns = (
        count // JOBS,
        [column for column in TrialRow.__table__.columns if column.name not in ("id", "job_id")],
    )
    with database.read() as session:
        have = session.scalars(
            select(TaskRow.job_id).where(TaskRow.trials_done == each).order_by(TaskRow.job_id)
        ).all()
    for number in range(len(have), JOBS):
        with database.write() as session:
            job, now = _add_job(session, target, owner, number, each), session.now()
            if number == 0:
                first = job
                for start in range(0, each, BATCH):
                    numbers = range(start, min(start + BATCH, each))
                    session.execute(
                        insert(TrialRow),
                        [
                            _trial(trial_number) | {"job_id": job, "created_at": now}
                            for trial_number in numbers
                        ],
                    )
            else:
                first = have[0] if have else first
                copied = select(literal(job), *columns).where(TrialRow.job_id == first)
                session.execute(
                    insert(TrialRow).from_select(
                        ["job_id", *(column.name for column in columns)], copied
                    )
                )
            _total(session, job)


def _add_job(session: Session, target: str, owner: str, number: int, trials: int) -> str:
    workload = known_workloads()[number]
    key = workloads.remember(session, workload, to_document(workload))
    new = jobs.NewJob(workloads=(key,), target=target, threads=1, trials=trials, owner=owner)
    lease = leases.claim(session, jobs.create(session, new)[0].id, owner="load")[1]
    leases.finish(session, lease, jobs.SUCCEEDED)
    return lease.job_id


def _trial(number: int) -> dict[str, Any]:
    """A trial that differs from all others in every order.

    One in eight fails, one in a thousand for a rare reason.
    """
    chance = np.random.default_rng(number)
    tile, vector, unroll = (int(2 ** chance.integers(0, 8)) for _ in range(3))
    row: dict[str, Any] = {
        "position": 0,
        "number": number,
        "build_s": 0.2,
        "measure_s": 0.1,
        "round": number // 64,
    }
    row |= {
        "attempts": 1,
        "quarantined": False,
        "worker": f"w{number % 4}",
        "predicted": float(chance.random()),
    }
    row |= {
        "config": {
            "sketch": "tiles",
            "tile": [tile, vector],
            "unroll": unroll,
            "seed": number,
            "pack": bool(number % 2),
        }
    }
    if number % 8 == 5:
        kind = "out_of_memory" if number % 1000 == 5 else KINDS[number // 8 % len(KINDS)]
        failure = {"outcome": kind, "error": f"{kind} in block {number}", "signature": kind}
        return (
            row
            | failure
            | {
                "median_s": None,
                "max_rel_error": None,
                "artifact": None,
                "samples_s": None,
                "conditions": None,
            }
        )
    median_s = float(1e-3 * np.exp(chance.normal()))
    conditions = {
        "lane": "cpu:1",
        "isolation": "process",
        "steal_s": 0.0,
        "frequency_hz": None,
        "cache": "warm",
        "abandoned": False,
    }
    row |= {
        "outcome": "ok",
        "median_s": median_s,
        "max_rel_error": 1e-7,
        "artifact": NO_LIBRARY,
        "conditions": conditions,
    }
    return row | {
        "samples_s": [median_s, median_s * 1.01, median_s * 0.99],
        "error": None,
        "signature": None,
    }


def _total(session: Session, job: str) -> None:
    """Counts the trials into their task, which usually happens one by one."""
    counts = select(func.count(), func.count(TrialRow.median_s), func.min(TrialRow.median_s)).where(
        TrialRow.job_id == job
    )
    done, ok, best = session.execute(counts).one()
    values = {"trials_done": done, "trials_ok": ok, "best_median_s": best, "state": "succeeded"}
    session.execute(update(TaskRow).where(TaskRow.job_id == job).values(**values))
    events.append(session, job, "note", {"text": "filled"})
