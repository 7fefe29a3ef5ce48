"""Small valid records for tests that need a database with something in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tuner.db import artifacts, jobs, leases, promotions, targets, workloads
from tuner.db.engine import Database, Session
from tuner.db.kernels import Kernel
from tuner.db.runs import Runnable
from tuner.measure.outcome import Conditions, Failed, FailureKind, Timed, Trial
from tuner.target.target import Bandwidth, Limits, Target
from tuner.workload.expression import Axis, Expression, Read, Stage, Tensor, Var
from tuner.workload.workload import Workload

LIBRARY = "ab" * 32


@dataclass
class ManualClock:
    """A clock that a test moves."""

    time: datetime = field(
        default_factory=lambda: datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    )

    def __call__(self) -> datetime:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def sample_workload(extent: int = 8) -> Workload:
    """A copy of `extent` numbers."""
    stage = Stage(
        name="y",
        axes=(Axis(name="i", extent=extent),),
        body=Read("x", (Var("i"),)),
        dtype="float32",
    )
    expression = Expression(
        name="copy",
        inputs=(Tensor(name="x", shape=(extent,), dtype="float32"),),
        stages=(stage,),
        outputs=("y",),
    )
    return Workload(expression=expression, key=f"{extent:064x}", op="copy", params={"N": extent})


def sample_target(name: str = "machine") -> Target:
    limits = Limits(
        fma_flops=1e11,
        fma_flops_best=1.1e11,
        bandwidth=(Bandwidth(working_set_bytes=4096, read=1e10, write=9e9, copy=8e9),),
    )
    return Target(
        key=f"{sum(name.encode()):064x}",
        kind="cpu",
        name=name,
        tvm={"kind": "llvm", "mcpu": "znver5"},
        isa=("avx2", "fma"),
        vector_bytes=32,
        vector_registers=16,
        cores=2,
        l1d_bytes=32768,
        l2_bytes=1 << 20,
        l3_bytes=1 << 25,
        fingerprint={"model": name},
        limits=limits,
    )


def timed(number: int, median_s: float = 1e-3) -> Trial:
    conditions = Conditions(lane="cpu:1", isolation="process", steal_s=0.0, frequency_hz=None)
    outcome = Timed(
        samples_s=(median_s, median_s * 1.01, median_s * 0.99),
        max_rel_error=1e-7,
        conditions=conditions,
        artifact=LIBRARY,
    )
    return Trial(
        number=number,
        config={"sketch": "tiles", "tile": (4, 8), "unroll": 2},
        outcome=outcome,
        build_s=0.5,
        measure_s=0.1,
    )


def failed(
    number: int,
    message: str = "expected 3 loops, got 2",
    kind: FailureKind = FailureKind.BUILD_ERROR,
) -> Trial:
    return Trial(
        number=number,
        config={"sketch": "tiles", "tile": (8, 8), "unroll": 4},
        outcome=Failed(kind=kind, message=message),
    )


def add_job(
    database: Database, *extents: int, priority: int = 0, trials: int = 10, owner: str | None = None
) -> str:
    """The id of a queued job over copies of these extents."""
    with database.write() as session:
        return queue_job(session, *extents, priority=priority, trials=trials, owner=owner).id


def queue_job(
    session: Session, *extents: int, priority: int = 0, trials: int = 10, owner: str | None = None
) -> jobs.Job:
    keys = tuple(
        workloads.remember(session, sample_workload(extent), {"extent": extent})
        for extent in extents or (8,)
    )
    target = targets.remember(session, sample_target())
    new = jobs.NewJob(
        workloads=keys, target=target, threads=1, trials=trials, priority=priority, owner=owner
    )
    return jobs.create(session, new)[0]


def add_claimed(database: Database, *extents: int) -> leases.Lease:
    """The lease of a new job."""
    job = add_job(database, *extents)
    with database.write() as session:
        return leases.claim(session, job, owner="first")[1]


def kernel_run(kernel: Kernel) -> Runnable:
    return Runnable(kind="kernel", id=kernel.id)


def sample_kernel(
    session: Session, *, median_s: float = 1e-3, previous: str | None = None, extent: int = 8
) -> promotions.NewKernel:
    """A kernel of a copy, whose workload, target and artifact are stored."""
    return promotions.NewKernel(
        workload=workloads.remember(session, sample_workload(extent), {"extent": extent}),
        target=targets.remember(session, sample_target()),
        threads=1,
        schedule={"module": "…", "trace": [], "versions": {"tvm": "0.27"}},
        config={"sketch": "tiles", "tile": (4, 8)},
        artifact=artifacts.remember(session, sha256=LIBRARY, size_bytes=3, kind="library"),
        median_s=median_s,
        ci95_s=(median_s * 0.9, median_s * 1.1),
        gflops=1.5,
        roofline_fraction=0.5,
        max_rel_error=1e-7,
        verified=True,
        default_median_s=2e-3,
        versions={"tvm": "0.27"},
        race={"default": {"median_s": 2e-3}},
        trial=0,
        previous=previous,
    )
