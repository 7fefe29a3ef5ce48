"""Kernels for GPUs from the database to disk: one library with their cubins, as
`tuner.export.cuda` writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.db import kernels, targets, workloads
from tuner.db.engine import Database, Session
from tuner.db.kernels import Kernel
from tuner.errors import UsageError
from tuner.export.artifacts import ArtifactStore
from tuner.export.cuda import ExportCudaKernel, export_cuda_library
from tuner.runtime.cuda_module import unpacked
from tuner.workload.spec import from_document


def are_for_gpus(database: Database, chosen: Sequence[Kernel]) -> bool:
    """Whether these kernels are for GPUs. Raises UsageError for kernels of both kinds,
    which no one library can hold."""
    with database.read() as session:
        kinds = {kernel.id: targets.get(session, kernel.target).kind for kernel in chosen}
    if len(set(kinds.values())) > 1:
        on_gpus = ", ".join(kernel_id for kernel_id, kind in kinds.items() if kind == "cuda")
        raise UsageError(
            f"{on_gpus} are for GPUs and the others are not; export them into a library of "
            f"their own"
        )
    return set(kinds.values()) == {"cuda"}


def export_cuda_kernels(
    database: Database, chosen: Sequence[Kernel], artifacts: Path, directory: Path, name: str
) -> Mapping[str, Any]:
    """Writes the library `name` into `directory`, whole or not at all; its manifest.
    Raises as `export_cuda_library` does."""
    store = ArtifactStore(artifacts)
    with database.read() as session:
        described = [_described(session, kernel, store) for kernel in chosen]
    return export_cuda_library(described, directory, name)


def _described(session: Session, kernel: Kernel, store: ArtifactStore) -> ExportCudaKernel:
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
