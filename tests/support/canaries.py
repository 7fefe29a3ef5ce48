"""A promoted kernel and one that is to take its place, for tests."""

from __future__ import annotations

from tests.support.kernel_samples import many_kernels
from tuner.db import kernels, promotions
from tuner.db.engine import Database
from tuner.db.kernels import Kernel
from tuner.db.promotions import NewKernel


def as_new(kernel: Kernel, previous: str | None) -> NewKernel:
    """Another kernel of the same workload, twice as fast."""
    return NewKernel(
        workload=kernel.workload, target=kernel.target, threads=kernel.threads, schedule={},
        config={"tile": 4}, artifact=kernel.artifact, median_s=kernel.median_s / 2,
        ci95_s=kernel.ci95_s, gflops=2.0, roofline_fraction=None, max_rel_error=0.0,
        verified=True, default_median_s=None, versions={}, previous=previous,
    )  # fmt: skip


def champion_and_canary(database: Database) -> tuple[str, str]:
    (champion,) = many_kernels(database, 1)
    with database.write() as session:
        new = as_new(kernels.get(session, champion), champion)
        return champion, promotions.promote(session, new, canary=True).id
