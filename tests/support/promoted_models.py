"""Kernels of models promoted in a database, without a search."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from tests.support.model_kernels import compiled, fast_config
from tests.support.targets import host_target
from tuner.app.models.tuned_model import policy_of
from tuner.db import artifacts, kernels, promotions, targets, workloads
from tuner.db.engine import Database
from tuner.db.kernels import RUNNERS_UP
from tuner.export.artifacts import ArtifactStore
from tuner.lowering.compiler import compile_kernel
from tuner.settings import Settings
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Config
from tuner.workers.jobs.model_library import Model
from tuner.workload.spec import to_document
from tuner.workload.workload import Workload

OFTEN_S = 0.01  # between two promotions


def promote_defaults(
    database: Database,
    model: Model,
    settings: Settings,
    *,
    runners_up: bool = False,
    versions: Mapping[str, str] | None = None,
) -> None:
    """The default schedule of each of its workloads as the promoted kernel; of fast ones
    some schedule of Winograd's algorithm. Runners-up have a random config."""
    store = ArtifactStore(settings.artifacts)
    for part in policy_of(settings).workloads(model.graph, host_target(), model.chains):
        workload = part.workload
        config = fast_config(workload) if workload.numerics == "fast" else None
        schedule = stored_schedule(workload, store, config)
        if runners_up:
            schedule[RUNNERS_UP] = [runner_up(workload, store)]
        promote(database, workload, schedule, store, versions or {})


def stored_schedule(
    workload: Workload, store: ArtifactStore, config: Config | None
) -> dict[str, Any]:
    """What a kernel's row says of a config's code, which the store has."""
    made = compile_kernel(
        workload=workload,
        target=host_target(),
        threads=1,
        config=config,
        symbol=f"k{workload.key[:8]}",
    )
    return {
        "object": store.put(made.object_code),
        "symbol": made.symbol,
        "prepack": made.prepack and made.prepack.document(),
    }


def promote(
    database: Database,
    workload: Workload,
    schedule: Mapping[str, Any],
    store: ArtifactStore,
    versions: Mapping[str, str],
) -> str:
    """Promotes a kernel in place of the one that is; its numbers are made up. Gives its id."""
    target, digest = host_target(), schedule["object"]
    size_bytes = store.path(digest).stat().st_size
    with database.write() as session:
        artifacts.remember(session, sha256=digest, size_bytes=size_bytes, kind="object")
        incumbent = kernels.find_promoted(session, workload.key, target.key, 1)
        new = promotions.NewKernel(
            workload=workloads.remember(session, workload, to_document(workload)),
            target=targets.remember(session, target),
            threads=1,
            schedule=schedule,
            config={},
            artifact=digest,
            median_s=1e-6,
            ci95_s=(1e-6, 1e-6),
            gflops=1.0,
            roofline_fraction=None,
            max_rel_error=0.0,
            verified=True,
            default_median_s=1e-6,
            versions=versions,
            race={},
            trial=0,
            previous=None if incumbent is None else incumbent.id,
        )
        return promotions.promote(session, new).id


@contextmanager
def replaced_often(database: Database, model: Model, settings: Settings) -> Iterator[list[str]]:
    """Promotes other kernels of a model during the block, as another command does, again and
    again; gives the ids of those so far."""
    store, generator, others = ArtifactStore(settings.artifacts), np.random.default_rng(0), []
    for part in policy_of(settings).workloads(model.graph, host_target(), model.chains):
        space = space_of(part.workload, host_target(), 1).space
        for point in space.sample(generator, 2):
            config = space.config(point)
            others.append((part.workload, stored_schedule(part.workload, store, config)))
    promoted, over = list[str](), threading.Event()

    def promote_all() -> None:
        while not over.is_set():
            for workload, schedule in others:
                promoted.append(promote(database, workload, schedule, store, {}))
                over.wait(OFTEN_S)

    thread = threading.Thread(target=promote_all)
    thread.start()
    try:
        yield promoted
    finally:
        over.set()
        thread.join(timeout=60)


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
