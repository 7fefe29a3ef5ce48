"""Promoted kernels of products, as if searches had found them on the sample target."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.database_samples import sample_kernel
from tuner.db import promotions, targets, workloads
from tuner.db.engine import Database
from tuner.target.target import Target
from tuner.workload.spec import to_document, workload_from_params

EXTENTS = (16, 32, 48, 64, 96, 128, 160, 192, 256, 320)


def product(rows: int) -> dict[str, Any]:
    """A product as a request has it."""
    return {"op": "matmul", "params": {"M": rows, "N": 64, "K": 64}}


def promote_products(database: Database, target: Target) -> None:
    """One of each of EXTENTS rows: 10 GFLOP/s, with an interval of 2%, and trial 7 of its job."""
    with database.write() as session:
        key = targets.remember(session, target)
        for rows in EXTENTS:
            workload = workload_from_params("matmul", {"M": rows, "N": 64, "K": 64})
            median_s = workload.expression.flops / 1e10
            new = replace(
                sample_kernel(session, median_s=median_s),
                workload=workloads.remember(session, workload, to_document(workload)),
                target=key,
                ci95_s=(0.99 * median_s, 1.01 * median_s),
                trial=7,
            )
            promotions.promote(session, new)
