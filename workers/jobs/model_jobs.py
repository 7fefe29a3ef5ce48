"""Jobs of a whole model: extracts its kernels, and makes the library of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tuner.db import artifacts, events, targets, tasks, workloads
from tuner.db.engine import Database
from tuner.db.jobs import Job
from tuner.db.leases import Lease
from tuner.errors import TunerError
from tuner.export.archive import export_archive
from tuner.export.artifacts import ArtifactStore
from tuner.export.kernel import ExportKernel
from tuner.export.signature import signer_at
from tuner.models.description import KernelTime, Measurement, described, to_json
from tuner.models.executors.executor import Executor
from tuner.models.graph_archive import is_packed
from tuner.models.importer import import_model
from tuner.models.reference.check_inputs import check_inputs
from tuner.models.tuning.chain_race import affordable_chains
from tuner.models.tuning.kernel_race import is_affordable, race_s
from tuner.models.tuning.numerics import NumericsPolicy
from tuner.models.tuning.shares import KernelShare, profile
from tuner.models.workloads import ModelWorkload
from tuner.runtime.link import toolchain_for
from tuner.runtime.toolchain import Toolchain
from tuner.target.target import Target
from tuner.workers.jobs.delivery import signature
from tuner.workers.jobs.model_library import (
    CheckedModel,
    Model,
    checked_kernel,
    kernels_of,
    others_of,
)
from tuner.workload.spec import to_document

# In such a job's settings: how often the model calls each workload, and of those of chains and
# siblings what they do the work of, and what is called beside them.
CALLS, CHAINS, BESIDE = "calls", "chains", "beside"
NAME = "model"  # of the library that a job makes


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalls:
    """How a model calls its workloads, by their keys."""

    counts: Mapping[str, int]  # in one call of the model
    # of what a chain or siblings need, the keys of what is not called then
    chains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # and those of what else has to be called then
    beside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class ModelMissing(TunerError):
    """A job of a model that names no file."""

    code = "model_missing"


def with_workloads(
    database: Database, lease: Lease, job: Job, store: ArtifactStore
) -> tuple[Job, ModelCalls]:
    """Adds a task for each kernel of the model to the job.

    Returns the job, and how the model calls its workloads. Raises ModelRefused for a file
    that is no model, ReaderMissing, ArtifactMissing and ArtifactCorrupt.
    """
    calls = job.settings.get(CALLS)
    if job.tasks and isinstance(calls, dict):
        return job, ModelCalls(
            counts={str(key): int(count) for key, count in calls.items()},
            chains={key: tuple(keys) for key, keys in job.settings.get(CHAINS, {}).items()},
            beside={key: tuple(keys) for key, keys in job.settings.get(BESIDE, {}).items()},
        )
    digest = job.settings.get(tasks.MODEL)
    if not isinstance(digest, str):
        raise ModelMissing(f"job {job.id} is of a model and names no file; submit it again")
    content = store.get(digest)
    graph = import_model(content, job.settings.get(tasks.SHAPES) or {})
    with database.read() as session:
        target = targets.get(session, job.target)
    # Whoever submitted a packed graph makes its library, of its nodes.
    chains = () if is_packed(content) else affordable_chains(graph, target, job.seconds)
    extracted = policy_of(job).workloads(graph, target, chains)
    described_job = _added(database, lease, extracted, store, to_json(described(graph)))
    return described_job, model_calls(extracted)


def model_calls(parts: Sequence[ModelWorkload]) -> ModelCalls:
    """How a model, or several together, call these workloads."""
    counts: dict[str, int] = {}
    for part in parts:
        counts[part.workload.key] = counts.get(part.workload.key, 0) + part.calls
    chains = {
        part.workload.key: part.instead_of for part in parts if part.workload.numerics == "strict"
    }
    return ModelCalls(
        counts=counts,
        chains={key: keys for key, keys in chains.items() if keys},
        beside={part.workload.key: part.beside for part in parts if part.beside},
    )


def with_library(
    database: Database,
    lease: Lease,
    job: Job,
    store: ArtifactStore,
    executor_of: Callable[[Target], AbstractContextManager[Executor | None]],
    signing_key: Path | None,
    check: Callable[[], None],
) -> None:
    """Stores the library of the whole model, checked against ONNX's evaluator and timed.

    Does nothing for jobs that were submitted with workloads or as a packed graph, since
    who submitted it makes the library. Without an executor, on a machine that is not the
    job's target, the library cannot be checked; an event then says that it is not made.
    `check` is called between the steps, and raises when the work is to stop. Raises what it
    does, ModelUnfinished, ModelWrong, ModelRefused, DeviceError, and what an export does.
    """
    if job.settings.get(CALLS) is not None or job.settings.get(tasks.LIBRARY) is not None:
        return
    content, shapes = (
        store.get(str(job.settings[tasks.MODEL])),
        job.settings.get(tasks.SHAPES) or {},
    )
    if is_packed(content):
        return
    with database.read() as session:
        target = targets.get(session, job.target)
    graph = import_model(content, shapes)
    check()
    chains = affordable_chains(graph, target, job.seconds)
    model = Model(content=content, shapes=shapes, graph=graph, chains=chains)
    policy = policy_of(job)
    kernels = kernels_of(database, model, target, job.threads, store, policy)
    affordable = is_affordable(race_s(model.graph), job.seconds)
    others = others_of(database, kernels, target, job.threads, store) if affordable else None
    inputs = check_inputs(model.graph, model.values)
    with executor_of(target) as executor:
        if executor is None:
            text = (
                f"the model's library is not made: it can only be checked on {target.name}; its "
                f"kernels are ready"
            )
            _noted(database, job.id, text)
            return
        executor.refuse(model.graph)
        checked = checked_kernel(
            model, kernels, target, job.threads, NAME, executor, policy, others, check
        )
        check()
        shares = profile(checked.graph, checked.kernels, target, job.threads, inputs, executor)
    for chosen in (checked.numerics, checked.chains, checked.race):
        if chosen is not None:
            _noted(database, job.id, chosen.summary)
    tools = toolchain_for(target)
    measurement = measured(checked.kernel, shares)
    _keep(database, lease, store, checked, measurement, tools, signing_key)


def measured(built: ExportKernel, shares: Sequence[KernelShare]) -> Measurement:
    """What was measured of a model's library, and of its kernels within it."""
    return Measurement(
        median_s=built.median_s,
        ci95_s=built.ci95_s,
        max_rel_error=built.max_rel_error,
        kernels={
            share.workload.key: KernelTime(
                inside_s=share.inside_s, peak_fraction=share.peak_fraction
            )
            for share in shares
        },
    )


def policy_of(job: Job) -> NumericsPolicy:
    """The numerics that a model's job allows."""
    return NumericsPolicy.of(job.settings.get(tasks.NUMERICS), job.settings.get(tasks.MAX_ERROR))


def _noted(database: Database, job_id: str, text: str) -> None:
    with database.write("note") as session:
        events.append(session, job_id, "note", {"text": text})


def _keep(
    database: Database,
    lease: Lease,
    store: ArtifactStore,
    checked: CheckedModel,
    measurement: Measurement,
    tools: Toolchain,
    signing_key: Path | None,
) -> None:
    """Stores the library and the description of what is in it, and records both in the job."""
    signer = None if signing_key is None else signer_at(signing_key)
    archive = export_archive([checked.kernel], NAME, toolchain=tools, signer=signer)
    description = to_json(described(checked.graph))
    digest, described_as = store.put(archive), store.put(description)
    signed = None if signer is None else signature(signer, digest)
    _note_library(
        database,
        lease,
        Delivered(
            library=digest,
            library_bytes=len(archive),
            signature=signed,
            description=described_as,
            description_bytes=len(description),
            measurement=measurement,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What the store holds of a finished model."""

    library: str  # digest of the archive
    library_bytes: int
    signature: str | None
    description: str  # digest
    description_bytes: int
    measurement: Measurement


def _note_library(database: Database, lease: Lease, delivered: Delivered) -> None:
    with database.write("library") as session:
        artifacts.remember(
            session,
            sha256=delivered.library,
            size_bytes=delivered.library_bytes,
            kind="export",
            signature=delivered.signature,
        )
        artifacts.remember(
            session,
            sha256=delivered.description,
            size_bytes=delivered.description_bytes,
            kind="description",
        )
        tasks.note_library(
            session,
            lease,
            delivered.library,
            description=delivered.description,
            measurement=asdict(delivered.measurement),
        )


def _added(
    database: Database,
    lease: Lease,
    extracted: Sequence[ModelWorkload],
    store: ArtifactStore,
    description: bytes,
) -> Job:
    digest = store.put(description)
    with database.write("model") as session:
        artifacts.remember(session, sha256=digest, size_bytes=len(description), kind="description")
        keys = [
            workloads.remember(session, part.workload, to_document(part.workload))
            for part in extracted
        ]
        return tasks.add(session, lease, keys, description=digest)
