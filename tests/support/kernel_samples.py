"""Thousands of promoted kernels for tests, written without being tuned."""

from __future__ import annotations

from sqlalchemy import insert

from tests.support.dashboard_samples import machine
from tests.support.database_samples import LIBRARY
from tuner.db import artifacts, targets, workloads
from tuner.db.engine import Database
from tuner.db.kernels import PROMOTED
from tuner.db.tables import KernelRow
from tuner.workload.spec import to_document, workload_from_params

ROWS = 100  # extents of each dimension: their pairs are the workloads


def many_kernels(database: Database, count: int) -> list[str]:
    """Ids of `count` promoted kernels, each of a matrix product of its own."""
    made = []
    with database.write() as session:
        target = targets.remember(session, machine())
        artifacts.remember(session, sha256=LIBRARY, size_bytes=1000, kind="library")
        for number in range(count):
            params = {"M": 1 + number // ROWS, "N": 1 + number % ROWS, "K": 8}
            workload = workload_from_params("matmul", params)
            now, median_s = session.now(), 1e-6 * (1 + number % 977)
            made.append(
                {
                    "id": f"k_many{number:06d}",
                    "workload_key": workloads.remember(session, workload, to_document(workload)),
                    "target_key": target,
                    "threads": 1,
                    "op": "matmul",
                    "state": PROMOTED,
                    "artifact": LIBRARY,
                    "median_s": median_s,
                    "ci95_low_s": 0.99 * median_s,
                    "ci95_high_s": 1.01 * median_s,
                    "gflops": 1.0,
                    "max_rel_error": 1e-7,
                    "verified": True,
                    "default_median_s": median_s * (1 + number % 13),
                    "config": {},
                    "versions": {"numpy": "2.0"},
                    "race": {},
                    "schedule": {},
                    "created_at": now,
                    "validated_at": now,
                }
            )
        session.execute(insert(KernelRow), made)
    return [str(row["id"]) for row in made]
