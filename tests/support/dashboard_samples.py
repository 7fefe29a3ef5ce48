"""A database as it looks after some use, for the dashboard's tests: jobs in every
state, kernels, workers, hostile texts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import func, select, text, update

from tests.support.database_samples import LIBRARY
from tests.support.described_models import description, measurement, settings
from tuner.db import (
    artifacts,
    events,
    jobs,
    lanes,
    leases,
    promotions,
    targets,
    trials,
    workers,
    workloads,
)
from tuner.db.engine import Database, Session
from tuner.db.leases import Lease
from tuner.db.tables import JobRow, KernelRow, TaskRow, TrialRow
from tuner.export.artifacts import ArtifactStore
from tuner.measure.outcome import Conditions, Failed, FailureKind, Timed, Trial
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Config
from tuner.target.target import Bandwidth, Limits, Target
from tuner.workload.expression import Tensor
from tuner.workload.spec import parse_spec, to_document, workload_from_notation
from tuner.workload.workload import Workload

HOSTILE = (
    "<script>document.title='owned'</script><img src=x "
    "onerror=\"document.title='owned'\">'\"&{{7*7}}"
)
SPEC = "matmul:M=512,N=512,K=512"
# A long label, and figures of many digits: what a table needs most room for.
WIDE = "conv2d:N=1,H=28,W=28,CI=256,CO=256,KH=3,KW=3,stride=2,pad=1,bias=true,act=relu"
LONG_AGO = datetime.now(UTC) - timedelta(days=123)
NOTATION = """kernel mlp(A: f32[M, K], B: f32[K, N], bias: f32[N]) -> (C: f32[M, N]) {
  # </textarea></pre><script>document.title='owned'</script>
  T[i, j] += A[i, k] * B[k, j]
  C[i, j] = max(T[i, j] + bias[j], 0)
}
"""
MESSAGES = {
    FailureKind.BUILD_ERROR: f"InternalError: Check failed: expected 3 loops, got {{}}\n  at "
    f"lower.cc:21 {HOSTILE}",
    FailureKind.WRONG_ANSWER: "output C differs at [{}, 3]: 1.25 instead of 0.5, relative "
    "error 1.5e+00",
    FailureKind.RUN_TIMEOUT: "one call took longer than {} s",
}


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Ids of what was made."""

    succeeded: str
    running: Lease
    failed: str
    cancelled: str
    queued: str
    notation: str
    kernel: str
    previous: str
    model: str


def machine(name: str = "AMD EPYC 9645 (znver5, 2 cores)") -> Target:
    bandwidth = [(1 << 14, 2.4e11), (1 << 19, 1.3e11), (1 << 23, 6.0e10), (1 << 27, 2.1e10)]
    return Target(
        key=f"{sum(name.encode()):064x}",
        kind="cpu",
        name=name,
        tvm={"kind": "llvm", "mcpu": "znver5"},
        isa=("avx2", "avx512f", "fma"),
        vector_bytes=64,
        vector_registers=32,
        cores=2,
        l1d_bytes=49152,
        l2_bytes=1 << 20,
        l3_bytes=1 << 25,
        fingerprint={"model": name},
        limits=Limits(
            fma_flops=1.32e11,
            fma_flops_best=1.36e11,
            bandwidth=tuple(
                Bandwidth(working_set_bytes=size, read=rate, write=rate * 0.7, copy=rate * 0.8)
                for size, rate in bandwidth
            ),
        ),
    )


def fill(database: Database, store: ArtifactStore) -> Samples:
    with database.write() as session:
        target = targets.remember(session, machine())
        keys = [remember(session, parsed(spec)) for spec in (SPEC, "softmax:M=1024,N=1024", WIDE)]
        mlp = remember(session, workload_from_notation(NOTATION, {"M": 128, "N": 256, "K": 64}))
        made = [
            new_job(session, [keys[0], keys[1]], target, trials=320),
            new_job(session, [keys[1]], target, trials=256),
            new_job(session, [keys[0]], target, strategy="random", trials=200),
            new_job(session, [mlp], target, trials=64),
            new_job(session, [keys[0]], target, strategy="evolutionary", trials=400),
            new_job(session, [keys[0]], target, trials=128),
            new_job(session, [keys[2], keys[0]], target, trials=100_000),
        ]
        model = model_job(session, store, keys, target)
    first, failed, cancelled, notation, running, queued, wide = made
    workload = parsed(SPEC)
    finish(database, first, workload, 320, seed=1, store=store)
    finish(database, cancelled, workload, 120, seed=2, end=jobs.CANCELLED)
    finish(
        database,
        failed,
        parsed("softmax:M=1024,N=1024"),
        12,
        seed=3,
        end=jobs.FAILED,
        error=f"no worker answered {HOSTILE}",
    )
    finish(
        database,
        notation,
        workload_from_notation(NOTATION, {"M": 128, "N": 256, "K": 64}),
        40,
        seed=4,
    )
    finish(database, wide, parsed(WIDE), 40, seed=6)
    lease = claim(database, running)
    record(database, lease, workload, 0, 90, seed=5)
    with database.write() as session:
        previous = promote(
            session, store, workload, first, median_s=2.9e-3, previous=None, trial=40
        )
        best = promote(
            session, store, workload, first, median_s=2.31e-3, previous=previous, trial=200
        )
        session.execute(
            update(TaskRow)
            .where(TaskRow.job_id == first, TaskRow.position == 0)
            .values(kernel_id=best)
        )
        old = promote(session, store, parsed(WIDE), wide, median_s=3.1e-3, previous=None, trial=20)
        session.execute(update(JobRow).where(JobRow.id == wide).values(created_at=LONG_AGO))
        session.execute(update(KernelRow).where(KernelRow.id == old).values(created_at=LONG_AGO))
        fleet(session)
    return Samples(
        succeeded=first,
        running=lease,
        failed=failed,
        cancelled=cancelled,
        queued=queued,
        notation=notation,
        kernel=best,
        previous=previous,
        model=model,
    )


def model_job(session: Session, store: ArtifactStore, keys: list[str], target: str) -> str:
    """A model of many steps, with odd names, whose library was made."""
    inputs = [
        Tensor(name=name, shape=(1, 3, 224, 224), dtype="float32") for name in ("x", HOSTILE * 3)
    ]
    made = description(keys, steps=300, inputs=inputs)
    new = jobs.NewJob(
        workloads=tuple(keys),
        target=target,
        threads=1,
        trials=64,
        kind=jobs.MODEL,
        settings=settings(session, store, made, measurement(keys)),
    )
    return jobs.create(session, new)[0].id


def parsed(spec: str) -> Workload:
    return parse_spec(spec)


def remember(session: Session, workload: Workload) -> str:
    return workloads.remember(session, workload, to_document(workload))


def new_job(
    session: Session, keys: list[str], target: str, *, trials: int, strategy: str = "annealing"
) -> str:
    new = jobs.NewJob(
        workloads=tuple(keys), target=target, threads=1, trials=trials, strategy=strategy
    )
    return jobs.create(session, new)[0].id


def claim(database: Database, job: str) -> Lease:
    with database.write() as session:
        return leases.claim(session, job, owner="test")[1]


def configs(workload: Workload, count: int, seed: int) -> list[Config]:
    rng = np.random.default_rng(seed)
    space = space_of(workload, machine(), 1).space
    return [space.config(point) for point in space.sample(rng, count)]


def record(
    database: Database, lease: Lease, workload: Workload, start: int, count: int, *, seed: int
) -> None:
    """`count` trials from number `start` on, in one transaction, each with its event as
    the orchestrator writes it."""
    rng = np.random.default_rng(seed + start)
    chosen = configs(workload, count, seed + start)
    with database.write() as session:
        for offset, config in enumerate(chosen):
            trial = sample_trial(rng, start + offset, config)
            score = (
                float(-np.log(trial.outcome.median_s) + rng.normal(0, 0.35))
                if isinstance(trial.outcome, Timed)
                else float(rng.normal(5, 1))
            )
            # Before the first training the estimate scores alone, on a scale of its own.
            estimate = score / 50 - 167.5 if trial.number else None
            add(session, lease, trial, predicted=score if trial.number >= 32 else estimate)


def add(session: Session, lease: Lease, trial: Trial, *, predicted: float | None = None) -> None:
    trials.record(
        session, lease, trial, predicted=predicted, round=trial.number // 32, worker="bench-1"
    )
    timed = isinstance(trial.outcome, Timed)
    data = {"task": 0, "number": trial.number, "outcome": "ok" if timed else "failed"}
    events.append(session, lease.job_id, "trial", data)


def sample_trial(rng: np.random.Generator, number: int, config: Config) -> Trial:
    if number == 0:
        config = {}
    elif rng.random() < 0.16:
        kind = list(MESSAGES)[int(rng.integers(len(MESSAGES)))]
        outcome = Failed(kind=kind, message=MESSAGES[kind].format(int(rng.integers(9))))
        return Trial(number=number, config=config, outcome=outcome, build_s=0.4)
    median = (
        0.045
        if number == 0
        else float(
            2.2e-3
            + 0.02 * np.exp(-number / 60) * rng.lognormal(0, 0.5)
            + 1e-3 * rng.lognormal(0, 1.0)
        )
    )
    if config.get("C.tile_j.copy1_B") == "none":
        median *= 1.6
    return Trial(
        number=number,
        config=config,
        outcome=timing(median),
        build_s=float(rng.uniform(0.3, 0.8)),
        measure_s=float(rng.uniform(0.1, 0.4)),
    )


def timing(median_s: float) -> Timed:
    conditions = Conditions(lane="cpu:1", isolation="process", steal_s=0.0, frequency_hz=None)
    return Timed(
        samples_s=(median_s, median_s * 1.01, median_s * 0.99),
        max_rel_error=2.4e-7,
        conditions=conditions,
        artifact=LIBRARY,
    )


def finish(
    database: Database,
    job: str,
    workload: Workload,
    count: int,
    *,
    seed: int,
    end: str = jobs.SUCCEEDED,
    error: str | None = None,
    store: ArtifactStore | None = None,
) -> None:
    lease = claim(database, job)
    record(database, lease, workload, 0, count, seed=seed)
    with database.write() as session:
        row = jobs.locked_row(session, job)
        if end == jobs.CANCELLED:
            jobs.enter(session, row, jobs.CANCELLING)
        jobs.enter(session, row, end, error=error)


def promote(
    session: Session,
    store: ArtifactStore,
    workload: Workload,
    job: str,
    *,
    median_s: float,
    previous: str | None,
    trial: int,
) -> str:
    content = f"a library of {median_s}".encode() * 400
    digest = store.put(content)
    artifacts.remember(session, sha256=digest, size_bytes=len(content), kind="library")
    lines = [
        f"l{number} = sch.get_loops(block=b{number})\nsch.split(l{number}, factors=[{number + 1}, "
        f"{int(median_s * 1e6)}])"
        for number in range(6)
    ]
    new = promotions.NewKernel(
        workload=workload.key,
        target=machine().key,
        threads=1,
        schedule={
            "module": "{}",
            "trace": "[]",
            "text": "\n".join([*lines, f"# {HOSTILE}"]),
            "symbol": "matmul_m512_n512_k512",
            "sources": {
                "llvm": f"; {HOSTILE}\ndefine i32 @matmul(ptr %A) {{\n  ret i32 0\n}}",
                "asm": "vfmadd231ps %zmm1, %zmm2, %zmm3",
            },
        },
        config=configs(workload, 1, trial)[0],
        artifact=digest,
        median_s=median_s,
        ci95_s=(median_s * 0.985, median_s * 1.02),
        gflops=workload.expression.flops / median_s / 1e9,
        roofline_fraction=0.0021 / median_s * 0.95,
        max_rel_error=2.4e-7,
        verified=True,
        default_median_s=0.045,
        versions={"apache-tvm": "0.27.0.post1", "note": HOSTILE},
        race={
            "default": {"median_s": 0.045, "ci95_s": [0.044, 0.0462]},
            "trial 40": {"median_s": median_s * 1.05, "ci95_s": [median_s * 1.03, median_s * 1.08]},
            "numpy": {"median_s": 0.0034, "ci95_s": [0.00335, 0.00347]},
            "torch": {"median_s": 0.00262, "ci95_s": [0.00258, 0.00271]},
            "trial 77": {"failed": "wrong_answer", "error": HOSTILE},
        },
        trial=trial,
        previous=previous,
    )
    kernel_id = promotions.promote(session, new).id
    # Promotion under a lease notes the job; here the job has ended already.
    session.execute(update(KernelRow).where(KernelRow.id == kernel_id).values(job_id=job))
    return kernel_id


def fleet(session: Session) -> None:
    """Two workers, one of them quarantined, and an hour of what their lanes did."""
    now = datetime.now(UTC)
    for name, state, reason in (
        ("bench-1", workers.ACTIVE, None),
        ("bench-2", workers.QUARANTINED, f"calibration drifted by 12% {HOSTILE}"),
    ):
        new = workers.NewWorker(
            id=name,
            host=name,
            target=machine().key,
            isolation="process",
            lanes=[{"name": "cpu:1", "cores": [1]}],
            versions={"tvm": "0.27"},
        )
        workers.join(session, new)
        workers.set_state(session, name, state, reason)
        rng = np.random.default_rng(len(reason or ""))
        start, spans = now - timedelta(minutes=50), []
        while start < now:
            for kind, mean in (("wait", 3), ("check", 2), ("time", 12), ("idle", 4)):
                end = start + timedelta(seconds=float(rng.exponential(mean) + 0.2))
                spans.append(
                    lanes.LaneSpan(
                        worker=name, lane="cpu:1", kind=kind, started_at=start, ended_at=end
                    )
                )
                spans.append(
                    lanes.LaneSpan(
                        worker=name,
                        lane="builder 0",
                        kind="build" if kind != "idle" else "idle",
                        started_at=start,
                        ended_at=end,
                    )
                )
                start = end
        lanes.add_spans(session, spans)
        for back in range(6):
            drift = 1.12 if name == "bench-2" and back < 2 else 1.004
            when = now - timedelta(minutes=10 * back + 1)
            calibration = lanes.Calibration(
                worker=name,
                lane="cpu:1",
                measured_at=when,
                median_s=1e-3 * drift,
                expected_s=1e-3,
                in_band=drift < 1.05,
            )
            lanes.add_calibration(session, calibration)


# Rows made inside SQLite: a hundred times faster than sending them.
LARGE = """
WITH RECURSIVE counted(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM counted WHERE i + 1 < :count),
  drawn AS MATERIALIZED (
    SELECT i, i > 0 AND abs(random()) % 10 = 0 AS bad, (abs(random()) % 1000) / 1000.0 AS noise, abs(random()) AS pick
    FROM counted
  ),
  timed AS (SELECT *, 0.0022 + 0.03 * (0.3 + noise * noise) * :count / (:count + 20.0 * i) AS median FROM drawn)
INSERT INTO trials (job_id, position, number, outcome, median_s, max_rel_error, build_s, measure_s, predicted, round, worker,
  attempts, quarantined, artifact, signature, created_at, config, samples_s, conditions, error)
SELECT :job, 0, i, CASE WHEN bad THEN 'build_error' ELSE 'ok' END, CASE WHEN bad THEN NULL ELSE median END,
  CASE WHEN bad THEN NULL ELSE 1e-7 END, 0.4, 0.1, 6 - 100 * median + noise, i / 32, 'bench-1', 1, 0,
  CASE WHEN bad THEN NULL ELSE :artifact END, CASE WHEN bad THEN 'ab12' END,
  strftime('%Y-%m-%d %H:%M:%f000', :began, '+' || (i * 0.2) || ' seconds'), json_extract(:configs, '$[' || (pick % 400) || ']'),
  CASE WHEN bad THEN NULL ELSE json_array(median, median, median) END,
  CASE WHEN bad THEN NULL ELSE '{"lane":"cpu:1","isolation":"process"}' END,
  CASE WHEN bad THEN 'expected 3 loops, got 2' END
FROM timed
"""  # noqa: E501


def large_job(database: Database, count: int) -> str:
    """The id of a finished job with `count` trials; SQLite only."""
    workload = parsed(SPEC)
    with database.write() as session:
        target = targets.remember(session, machine())
        job = new_job(session, [remember(session, workload)], target, trials=count)
    began = datetime.now(UTC) - timedelta(hours=6)
    plain = [
        {name: list(v) if isinstance(v, tuple) else v for name, v in config.items()}
        for config in configs(workload, 400, seed=0)
    ]
    given = {
        "count": count,
        "job": job,
        "artifact": LIBRARY,
        "configs": json.dumps(plain),
        "began": f"{began:%Y-%m-%d %H:%M:%S}",
    }
    here = (TrialRow.job_id == job, TrialRow.median_s.is_not(None))
    with database.write() as session:
        session.execute(text(LARGE), given)
        ok, best = session.execute(
            select(func.count(), func.min(TrialRow.median_s)).where(*here)
        ).one()
        totals = {
            "trials_done": count,
            "trials_ok": ok,
            "best_median_s": best,
            "state": "succeeded",
            "space_size": "539136",
        }
        session.execute(update(TaskRow).where(TaskRow.job_id == job).values(**totals))
        ended = {"state": "succeeded", "started_at": began, "finished_at": datetime.now(UTC)}
        session.execute(update(JobRow).where(JobRow.id == job).values(**ended))
    return job


def records_of(medians_s: NDArray[np.float64], numbers: NDArray[np.int64]) -> list[int]:
    """Numbers of the trials that were faster than all before, one after another."""
    best, records = float("inf"), []
    for number, median in zip(numbers.tolist(), medians_s.tolist(), strict=True):
        if median < best:
            best = median
            records.append(number)
    return records
