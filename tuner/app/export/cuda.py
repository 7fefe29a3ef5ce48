"""Kernels for GPUs from the database as one library with their cubins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.db import kernels, targets, workloads
from tuner.db.engine import Database, Session
from tuner.db.kernels import Kernel
from tuner.export.artifacts import ArtifactStore
from tuner.export.cuda import ExportCudaKernel, export_cuda_library
from tuner.runtime.cuda_module import unpacked
from tuner.workload.spec import from_document


def export_cuda_kernels(
    database: Database, chosen: Sequence[Kernel], artifacts: Path, directory: Path, name: str
) -> Mapping[str, Any]:
    """Writes the library `name` into `directory`, whole or not at all.

    Returns the manifest's document. Raises as `export_cuda_library` does.
    """
    store = ArtifactStore(artifacts)
    with database.read() as session:
        described = [_described(session, kernel, store) for kernel in chosen]
    return export_cuda_library(described, directory, name)


def _described(session: Session, kernel: Kernel, store: ArtifactStore) -> ExportCudaKernel:
    """The kernel as export takes it."""
    target, schedule = targets.get(session, kernel.target), kernels.schedule(session, kernel.id)
    return ExportCudaKernel(
        module=unpacked(store.get(schedule["object"])),
        workload=from_document(workloads.get(session, kernel.workload).document),
        measured={
            "target": {"key": target.key, "kind": target.kind, "name": target.name},
            "isa": list(target.isa),
            "threads": kernel.threads,
            "median_s": kernel.median_s,
            "ci95_s": list(kernel.ci95_s),
            "verified": kernel.verified,
            "max_rel_error": kernel.max_rel_error,
            "provenance": {
                "job": kernel.job,
                "trial": kernel.trial,
                "trace": schedule.get("text"),
                "versions": dict(kernel.versions),
            },
        },
    )
