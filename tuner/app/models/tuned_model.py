"""Models: a job that tunes their kernels, then one library, checked and timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tuner.app.models.command_time import CommandTime
from tuner.app.models.family import Family, family_kernel
from tuner.app.platforms.table import measuring_platform
from tuner.db import artifacts, jobs, targets, workloads
from tuner.db.engine import Database
from tuner.db.jobs import Job, NewJob
from tuner.db.tasks import DESCRIPTION, MAX_ERROR, MODEL, NUMERICS, SHAPES, SPARE_S
from tuner.export.artifacts import ArtifactStore
from tuner.export.kernel import ExportKernel
from tuner.export.manifest import Manifest
from tuner.export.signature import signer_at
from tuner.measure.cache import refuse_cold
from tuner.measure.objective import refuse_goal
from tuner.models.description import described, to_json
from tuner.models.errors import ModelRefused
from tuner.models.library.concurrency import Concurrency
from tuner.models.reference.check_inputs import check_inputs
from tuner.models.tuning.chain_race import ChainRace
from tuner.models.tuning.kernel_race import KernelRace
from tuner.models.tuning.numerics import NumericsChoice, NumericsPolicy
from tuner.models.tuning.shares import KernelShare, profile
from tuner.settings import Settings
from tuner.target.target import Target
from tuner.workers.jobs.model_jobs import BESIDE, CALLS, CHAINS, model_calls
from tuner.workers.jobs.model_library import (
    CheckedModel,
    Model,
    checked_kernel,
    kernels_of,
    others_of,
)
from tuner.workload.spec import to_document

# Why a model has neither cold caches nor objectives beside time.
AS_A_WHOLE = "a model's kernels are chosen by the time of the whole"
MEETS_ITS_OWN = "a model's kernels meet the caches as the model leaves them"


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedModel:
    """An exported model."""

    manifest: Manifest
    median_s: float
    ci95_s: tuple[float, float]
    max_rel_error: float
    shares: tuple[KernelShare, ...]  # where its time goes, the largest part first
    # of the greatest batch where there are several; None where all nodes had to be strict
    numerics: NumericsChoice | None = None
    chains: ChainRace | None = None  # compared inside of it; of the greatest batch likewise
    race: KernelRace | None = None  # of kernels inside of it, likewise
    concurrency: Concurrency | None = None  # of its nodes, likewise


def submit_model(
    database: Database,
    models: Sequence[Model],
    target: Target,
    settings: Settings,
    *,
    seconds: float | None,
    spare_s: float = 0.0,
) -> Job:
    """Queues the tuning of a model's kernels within one budget.

    The budget is the settings' trials for each kernel on average, and `seconds` for all
    together, promotions included. Whoever waits leaves out `spare_s` behind a job that is late.
    `models` come from one file. There are several for several batch sizes, the greatest last.
    """
    refuse_cold(settings.cache, MEETS_ITS_OWN)
    refuse_goal(settings.goal, AS_A_WHOLE)
    policy = policy_of(settings)
    parts = [
        part for model in models for part in policy.workloads(model.graph, target, model.chains)
    ]
    if not parts:
        raise ModelRefused(
            "every output of the model is known at import, so that there is nothing to tune"
        )
    model = models[-1]
    description = to_json(described(model.graph))
    described_as = ArtifactStore(settings.artifacts).put(description)
    with database.write("submit") as session:
        targets.remember(session, target)
        artifacts.remember(
            session, sha256=described_as, size_bytes=len(description), kind="description"
        )
        keys = dict.fromkeys(
            workloads.remember(session, part.workload, to_document(part.workload)) for part in parts
        )
        calls = model_calls(parts)
        new = NewJob(
            workloads=tuple(keys),
            target=target.key,
            threads=settings.threads,
            trials=settings.trials,
            seconds=seconds,
            strategy=settings.strategy,
            seed=settings.seed,
            kind=jobs.MODEL,
            settings={
                # Nobody reads its content, as large as its weights: the job has its workloads,
                # and whoever submits it makes the library.
                MODEL: sha256(model.content).hexdigest(),
                CALLS: calls.counts,
                CHAINS: calls.chains,
                BESIDE: calls.beside,
                SHAPES: dict(model.shapes),
                NUMERICS: settings.numerics,
                MAX_ERROR: settings.max_error,
                DESCRIPTION: described_as,
                SPARE_S: spare_s,
            },
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
    frameworks: Sequence[str] = (),
    command: CommandTime | None = None,
) -> TunedModel:
    """Writes the library `name` with the function `<name>_run`, whole or not at all.

    It is for the named frameworks too. Kernels race inside the model if `command` has time
    for it. Raises ModelUnfinished,
    ModelWrong, and what `tuner.export.library.export_library` raises.
    """
    threads, policy = settings.threads, policy_of(settings)
    store = ArtifactStore(settings.artifacts)
    kernels = kernels_of(database, model, target, threads, store, policy)
    races = command is None or command.can_race([model])
    others = others_of(database, kernels, target, threads, store) if races else None
    inputs = check_inputs(model.graph, model.values)
    with measuring_platform(target, settings).executor(target, settings, threads) as executor:
        checked = checked_kernel(model, kernels, target, threads, name, executor, policy, others)
        shares = profile(checked.graph, checked.kernels, target, threads, inputs, executor)
        signer = None if signing_key is None else signer_at(signing_key)
        manifest = executor.export(checked.kernel, directory, name, signer, frameworks)
        return _tuned_model(manifest, checked.kernel, shares, checked)


def export_family(
    database: Database,
    family: Family,
    target: Target,
    settings: Settings,
    directory: Path,
    name: str,
    *,
    signing_key: Path | None,
    frameworks: Sequence[str] = (),
    command: CommandTime | None = None,
) -> TunedModel:
    """Does as `export_model` for a model for several extents.

    Times and shares are those of the greatest. Raises as `export_model` does.
    """
    store, members = ArtifactStore(settings.artifacts), {}
    threads, policy = settings.threads, policy_of(settings)
    with measuring_platform(target, settings).executor(target, settings, threads) as executor:
        waiting = [*family.members.values()]
        for extent, model in family.members.items():
            kernels = kernels_of(database, model, target, threads, store, policy)
            races = command is None or command.can_race(waiting)
            others = others_of(database, kernels, target, threads, store) if races else None
            checked = checked_kernel(
                model, kernels, target, threads, f"{name}_{extent}", executor, policy, others
            )
            members[extent] = checked.kernel
            waiting.pop(0)
        combined = family_kernel(family, members, f"{name}_run", executor, policy)
        # After the loop these are the model and the kernels of the greatest batch.
        inputs = check_inputs(model.graph, model.values)
        shares = profile(checked.graph, checked.kernels, target, threads, inputs, executor)
        signer = None if signing_key is None else signer_at(signing_key)
        manifest = executor.export(combined, directory, name, signer, frameworks)
        return _tuned_model(manifest, combined, shares, checked)


def policy_of(settings: Settings) -> NumericsPolicy:
    """The numerics that the settings allow."""
    return NumericsPolicy.of(settings.numerics, settings.max_error)


def _tuned_model(
    manifest: Manifest,
    kernel: ExportKernel,
    shares: tuple[KernelShare, ...],
    checked: CheckedModel,
) -> TunedModel:
    return TunedModel(
        manifest=manifest,
        median_s=kernel.median_s,
        ci95_s=kernel.ci95_s,
        max_rel_error=kernel.max_rel_error,
        shares=shares,
        numerics=checked.numerics,
        chains=checked.chains,
        race=checked.race,
        concurrency=checked.concurrency,
    )
