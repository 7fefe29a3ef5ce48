"""Kernels of models promoted in a database, without a search."""

from __future__ import annotations

from typing import Any

from tests.support.model_kernels import compiled, fast_config
from tests.support.targets import host_target
from tuner.app.models.tuned_model import policy_of
from tuner.db import artifacts, promotions, targets, workloads
from tuner.db.engine import Database
from tuner.db.kernels import RUNNERS_UP
from tuner.export.artifacts import ArtifactStore
from tuner.lowering.compiler import compile_kernel
from tuner.settings import Settings
from tuner.workers.jobs.model_library import Model
from tuner.workload.spec import to_document
from tuner.workload.workload import Workload


def promote_defaults(
    database: Database, model: Model, settings: Settings, *, runners_up: bool = False
) -> None:
    """The default schedule of each of its workloads as the promoted kernel; of fast ones
    some schedule of Winograd's algorithm. Runners-up have a random config."""
    target, store = host_target(), ArtifactStore(settings.artifacts)
    for part in policy_of(settings).workloads(model.graph, target, model.chains):
        made = compile_kernel(
            workload=part.workload,
            target=target,
            threads=1,
            config=fast_config(part.workload) if part.workload.numerics == "fast" else None,
            symbol=f"k{part.workload.key[:8]}",
        )
        digest = store.put(made.object_code)
        with database.write() as session:
            artifacts.remember(
                session, sha256=digest, size_bytes=len(made.object_code), kind="object"
            )
            new = promotions.NewKernel(
                workload=workloads.remember(session, part.workload, to_document(part.workload)),
                target=targets.remember(session, target),
                threads=1,
                schedule={
                    "object": digest,
                    "symbol": made.symbol,
                    "prepack": made.prepack and made.prepack.document(),
                    **({RUNNERS_UP: [runner_up(part.workload, store)]} if runners_up else {}),
                },
                config={},
                artifact=digest,
                median_s=1e-6,
                ci95_s=(1e-6, 1e-6),
                gflops=1.0,
                roofline_fraction=None,
                max_rel_error=0.0,
                verified=True,
                default_median_s=1e-6,
                versions={},
                race={},
                trial=0,
                previous=None,
            )
            promotions.promote(session, new)


def runner_up(workload: Workload, store: ArtifactStore) -> dict[str, Any]:
    made = compiled(workload, 1)
    return {
        "trial": 7,
        "median_s": 1.1e-6,
        "ci95_s": [1e-6, 1.2e-6],
        "max_rel_error": 0.0,
        "object": store.put(made.object_code),
        "symbol": made.tvm_symbol.removeprefix("__tvm_ffi_"),
        "prepack": made.prepack and made.prepack.document(),
    }
