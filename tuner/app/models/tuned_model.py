"""A model from its file to its library: a job of its kernels, then these with a
generated executor, checked and timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.app.models.family import Family, family_kernel
from tuner.app.models.shares import KernelShare, profile
from tuner.db import artifacts, jobs, targets, workloads
from tuner.db.engine import Database
from tuner.db.jobs import Job, NewJob
from tuner.export.artifacts import ArtifactStore
from tuner.export.library import export_library
from tuner.export.manifest import Manifest
from tuner.export.signature import signer_at
from tuner.models.workloads import workloads_of
from tuner.settings import Settings
from tuner.target.target import Target
from tuner.workers.fleet.machine import plan_machine, usable_nodes
from tuner.workers.jobs.model_jobs import CALLS, MODEL, SHAPES
from tuner.workers.jobs.model_library import Model, checked_kernel, kernels_of, random_inputs
from tuner.workload.spec import to_document


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedModel:
    """What came of it."""

    manifest: Manifest
    median_s: float
    ci95_s: tuple[float, float]
    max_rel_error: float
    shares: tuple[KernelShare, ...]  # where its time goes, the largest part first


def submit_model(
    database: Database, models: Sequence[Model], target: Target, settings: Settings
) -> Job:
    """Queues the tuning of a model's kernels within one budget: the settings' trials
    for each on average, seconds for all.

    `models` are of one file; more than one where several batches are to be tuned, the
    last then the greatest.
    """
    parts = [part for model in models for part in workloads_of(model.graph)]
    model = models[-1]
    digest = ArtifactStore(settings.artifacts).put(model.content)
    with database.write("submit") as session:
        targets.remember(session, target)
        artifacts.remember(session, sha256=digest, size_bytes=len(model.content), kind="model")
        keys = dict.fromkeys(
            workloads.remember(session, part.workload, to_document(part.workload)) for part in parts
        )
        calls: dict[str, int] = {}
        for part in parts:
            calls[part.workload.key] = calls.get(part.workload.key, 0) + part.calls
        new = NewJob(
            workloads=tuple(keys),
            target=target.key,
            threads=settings.threads,
            trials=settings.trials,
            seconds=settings.seconds,
            strategy=settings.strategy,
            seed=settings.seed,
            kind=jobs.MODEL,
            settings={MODEL: digest, CALLS: calls, SHAPES: dict(model.shapes)},
        )
        job, _ = jobs.create(session, new)
    return job


def export_model(
    database: Database,
    model: Model,
    target: Target,
    settings: Settings,
    directory: Path,
    name: str,
    *,
    signing_key: Path | None,
) -> TunedModel:
    """Writes the library `name` with the one function `<name>_run` into `directory`,
    whole or not at all.

    Raises ModelUnfinished, ModelWrong, and what `tuner.export.library.export_library` does.
    """
    kernels = kernels_of(
        database, model.graph, target, settings.threads, ArtifactStore(settings.artifacts)
    )
    lane = plan_machine(usable_nodes(), threads=settings.threads, declared=settings.lanes).lanes[0]
    seen = checked_kernel(model, kernels, target, settings.threads, name, lane.cores)
    shares = profile(
        model.graph, kernels, target, settings.threads, random_inputs(seen), lane.cores
    )
    signer = None if signing_key is None else signer_at(signing_key)
    manifest = export_library([seen], directory, name, signer=signer)
    return TunedModel(
        manifest=manifest,
        median_s=seen.median_s,
        ci95_s=seen.ci95_s,
        max_rel_error=seen.max_rel_error,
        shares=shares,
    )


def export_family(
    database: Database,
    family: Family,
    target: Target,
    settings: Settings,
    directory: Path,
    name: str,
    *,
    signing_key: Path | None,
) -> TunedModel:
    """As `export_model` of a model for a range of batches; its times and shares are
    those of the greatest."""
    store, members = ArtifactStore(settings.artifacts), {}
    lane = plan_machine(usable_nodes(), threads=settings.threads, declared=settings.lanes).lanes[0]
    for extent, model in family.members.items():
        kernels = kernels_of(database, model.graph, target, settings.threads, store)
        members[extent] = checked_kernel(
            model, kernels, target, settings.threads, f"{name}_{extent}", lane.cores
        )
    made = family_kernel(family, members, f"{name}_run", lane.cores)
    shares = profile(
        model.graph, kernels, target, settings.threads, random_inputs(members[extent]), lane.cores
    )
    signer = None if signing_key is None else signer_at(signing_key)
    manifest = export_library([made], directory, name, signer=signer)
    return TunedModel(
        manifest=manifest,
        median_s=made.median_s,
        ci95_s=made.ci95_s,
        max_rel_error=made.max_rel_error,
        shares=shares,
    )
