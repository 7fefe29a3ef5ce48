"""Kernels promoted in a database."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from tests.support.database_samples import sample_kernel
from tests.support.live_service import LiveService
from tuner.db import artifacts, kernels, promotions, workloads
from tuner.workload.spec import to_document, workload_from_params
from tuner.workload.workload import Workload

ARCHIVE = bytes(range(256)) * 40
DIGEST = hashlib.sha256(ARCHIVE).hexdigest()


def promote(service: LiveService, m: int = 16, *, dtype: str = "float32") -> str:
    """The id of a new promoted kernel of an M×8×4 matmul."""
    workload = workload_from_params("matmul", {"M": m, "N": 8, "K": 4, "dtype": dtype})
    schedule = {"module": "…", "trace": [["split", 4]], "sources": {"llvm": "define void @f()"}}
    return promote_archive(service, workload, ARCHIVE, signature="c2ln", schedule=schedule)


def promote_archive(
    service: LiveService,
    workload: Workload,
    archive: bytes,
    *,
    signature: str | None,
    schedule: Mapping[str, Any],
) -> str:
    """The id of a new promoted kernel whose export is `archive`."""
    digest = service.store.put(archive)
    with service.database.write() as session:
        key = workloads.remember(session, workload, to_document(workload))
        artifacts.remember(
            session, sha256=digest, size_bytes=len(archive), kind="export", signature=signature
        )
        sample = sample_kernel(session)
        incumbent = kernels.find_promoted(session, key, sample.target, 1)
        names = (
            "target",
            "threads",
            "config",
            "median_s",
            "ci95_s",
            "gflops",
            "roofline_fraction",
            "max_rel_error",
            "verified",
        )
        new = promotions.NewKernel(
            workload=key,
            artifact=digest,
            schedule=schedule,
            default_median_s=2e-3,
            versions={"tvm": "0.27"},
            previous=None if incumbent is None else incumbent.id,
            **{name: getattr(sample, name) for name in names},
        )
        return promotions.promote(session, new).id
