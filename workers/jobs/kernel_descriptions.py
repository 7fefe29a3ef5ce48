"""Describes promoted kernels for the export: object code, signature, timings, examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tuner.db import kernels, targets, workloads
from tuner.db.engine import Session
from tuner.db.kernels import RUNNERS_UP, Kernel
from tuner.export.artifacts import ArtifactCorrupt, ArtifactMissing, ArtifactStore
from tuner.export.examples import expected_outputs
from tuner.export.kernel import ExportKernel, computation_of
from tuner.measure.cache import WARM
from tuner.runtime.prepack import prepack_from
from tuner.workload.spec import from_document
from tuner.workload.workload import Workload

Widen = Callable[[ExportKernel, Workload, Mapping[str, Any]], ExportKernel]
"""Gives a kernel variants for other CPUs, from its workload and stored schedule (tuner.app.export.variants)."""  # noqa: E501


def describe(
    session: Session,
    kernel: Kernel,
    store: ArtifactStore,
    widen: Widen | None = None,
    *,
    answers: bool = True,
) -> ExportKernel:
    """A kernel for the export; without `answers`, expected outputs are not computed."""
    workload = from_document(workloads.get(session, kernel.workload).document)
    target = targets.get(session, kernel.target)
    schedule = kernels.schedule(session, kernel.id)
    described = ExportKernel(
        **computation_of(workload, target),
        threads=kernel.threads,
        object_code=store.get(schedule["object"]),
        tvm_symbol=f"__tvm_ffi_{schedule['symbol']}",
        median_s=kernel.median_s,
        ci95_s=kernel.ci95_s,
        verified=kernel.verified,
        max_rel_error=kernel.max_rel_error,
        prepack=prepack_from(schedule["prepack"]) if schedule.get("prepack") else None,
        overwritable=tuple(schedule.get("overwritable", ())),
        provenance={
            "job": kernel.job,
            "trial": kernel.trial,
            "trace": schedule.get("text"),
            "versions": dict(kernel.versions),
            **({} if kernel.cache == WARM else {"cache": kernel.cache}),
        },
    )
    described = described if widen is None else widen(described, workload, schedule)
    return replace(
        described, expected=expected_outputs(workload.expression, described) if answers else None
    )


def runners_up(
    session: Session, kernel: Kernel, described: ExportKernel, store: ArtifactStore
) -> tuple[ExportKernel, ...]:
    """Kernels that were nearly as fast as a described one in its race, the fastest first.

    Those whose object code is lost are left out.
    """
    others = []
    for document in kernels.schedule(session, kernel.id).get(RUNNERS_UP, ()):
        try:
            object_code = store.get(document["object"])
        except (ArtifactMissing, ArtifactCorrupt):
            continue
        prepack = document.get("prepack")
        others.append(
            replace(
                described,
                object_code=object_code,
                tvm_symbol=f"__tvm_ffi_{document['symbol']}",
                median_s=document["median_s"],
                ci95_s=tuple(document["ci95_s"]),
                max_rel_error=document["max_rel_error"],
                prepack=prepack_from(prepack) if prepack else None,
                overwritable=tuple(document.get("overwritable", ())),
                # Another job may have promoted the kernel since the other was described.
                provenance={
                    **described.provenance,
                    "job": kernel.job,
                    "trial": document["trial"],
                    "trace": document.get("text"),
                    "versions": dict(kernel.versions),
                },
            )
        )
    return tuple(others)
