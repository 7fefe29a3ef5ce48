"""A kernel that a library has overtaken, for what shows it."""

from __future__ import annotations

from tests.support.kernel_samples import many_kernels
from tuner.db import races
from tuner.db.engine import Database
from tuner.measure.regression import Contest, RaceRecord
from tuner.measure.statistics import Ratio


def contest(ratio: float, version: str) -> Contest:
    return Contest(
        contender="torch",
        version=version,
        median_s=2e-3,
        ci95_s=(1.99e-3, 2.01e-3),
        ratio=Ratio(value=ratio, ci95=(ratio * 0.99, ratio * 1.01)),
    )


def overtaken(database: Database) -> str:
    """A kernel that an upgraded library has overtaken, confirmed."""
    (kernel,) = many_kernels(database, 1)
    for ratio, version in [(1.5, "1")] * 3 + [(0.8, "2<b>")] * 4:
        record = RaceRecord(
            median_s=1e-3, ci95_s=(0.99e-3, 1.01e-3), contests=(contest(ratio, version),)
        )
        with database.write() as session:
            races.record(session, kernel, record, {"torch": version})
    return kernel
