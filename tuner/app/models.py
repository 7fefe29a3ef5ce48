"""A model from its file to its library: a job of its kernels, then these with a generated executor, checked and timed."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from db import artifacts, jobs, kernels, targets, workloads
from db.engine import Database
from db.jobs import Job, NewJob
from tuner.app.export import describe
from tuner.app.models_profile import KernelShare, profile
from tuner.errors import TunerError
from tuner.export.artifacts import ArtifactStore
from tuner.export.examples import example_inputs
from tuner.export.kernel import ExportKernel
from tuner.export.library import export_library, function_of
from tuner.export.manifest import Manifest
from tuner.export.signature import signer_at
from tuner.models.checking import run_library
from tuner.models.graph import Graph
from tuner.models.importer import reference_outputs
from tuner.models.library import ModelNumbers, model_kernel
from tuner.models.workloads import workloads_of
from tuner.runtime.link import link
from tuner.settings import Settings
from tuner.target.target import Target
from tuner.workload.spec import to_document
from workers.machine import plan_machine, usable_nodes
from workers.models import CALLS, MODEL, SHAPES
from workers.timeline import versions

TOLERANCE = 1e-4  # largest error of an output relative to its greatest value, against ONNX's reference evaluator
Array = np.ndarray[Any, np.dtype[Any]]


class ModelWrong(TunerError):
    """The tuned model does not compute what ONNX's reference evaluator does; it is not exported."""

    code = "wrong_answer"


class ModelUnfinished(TunerError):
    """A kernel of the model is missing: its job has not come to an end."""

    code = "no_kernel"


@dataclass(frozen=True, kw_only=True)
class Model:
    """A file that was read."""

    content: bytes
    shapes: Mapping[str, int]  # of extents its inputs name
    graph: Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedModel:
    """What came of it."""

    manifest: Manifest
    median_s: float
    ci95_s: tuple[float, float]
    max_rel_error: float
    shares: tuple[KernelShare, ...]  # where its time goes, the largest part first


def submit_model(database: Database, model: Model, target: Target, settings: Settings) -> Job:
    """Queues the tuning of the model's kernels within one budget: the settings' trials for each on average, seconds for all."""
    found = workloads_of(model.graph)
    digest = ArtifactStore(settings.artifacts).put(model.content)
    with database.write("submit") as session:
        targets.remember(session, target)
        artifacts.remember(session, sha256=digest, size_bytes=len(model.content), kind="model")
        keys = tuple(workloads.remember(session, one.workload, to_document(one.workload)) for one in found)
        calls = {one.workload.key: one.calls for one in found}
        new = NewJob(
            workloads=keys,
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
    database: Database, model: Model, target: Target, settings: Settings, directory: Path, name: str, *, signing_key: Path | None
) -> TunedModel:
    """Writes the library `name` with the one function `<name>_run` into `directory`, whole or not at all.

    Raises ModelUnfinished, ModelWrong, and what `tuner.export.library.export_library` does.
    """
    found = _kernels(database, model.graph, target, settings)
    numbers = ModelNumbers(provenance={"model": sha256(model.content).hexdigest(), "versions": versions()})
    built = model_kernel(model.graph, found, target, settings.threads, f"{name}_run", numbers)
    with tempfile.TemporaryDirectory(prefix="tuner-model-") as folder:
        path = Path(folder, "model.so")
        path.write_bytes(link("model", [function_of(built)]))
        lane = plan_machine(usable_nodes(), threads=settings.threads, declared=settings.lanes).lanes[0]
        seen = _seen(path, built, model, lane.cores)
    shares = profile(model.graph, found, target, settings.threads, _random_inputs(built), lane.cores)
    signer = None if signing_key is None else signer_at(signing_key)
    manifest = export_library([seen], directory, name, signer=signer)
    return TunedModel(
        manifest=manifest, median_s=seen.median_s, ci95_s=seen.ci95_s, max_rel_error=seen.max_rel_error, shares=shares
    )


def _kernels(database: Database, graph: Graph, target: Target, settings: Settings) -> dict[str, ExportKernel]:
    """The promoted kernel of each workload, by key."""
    store, found = ArtifactStore(settings.artifacts), {}
    with database.read() as session:
        for one in workloads_of(graph):
            kernel = kernels.find_promoted(session, one.workload.key, target.key, settings.threads)
            if kernel is None:
                raise ModelUnfinished(
                    f"{one.workload.spec} of the model has no kernel yet; tune the model again or resume its job"
                )
            found[one.workload.key] = describe(session, kernel, store, answers=False)
    return found


def _seen(path: Path, built: ExportKernel, model: Model, cores: Sequence[int]) -> ExportKernel:
    """The model checked on the examples' inputs and on others, and timed."""
    symbol, worst = str(built.symbol), 0.0
    examples = list(example_inputs(built))
    expected: tuple[Array, ...] = ()
    for given in (_random_inputs(built), examples):
        right = reference_outputs(model.content, given, model.shapes)
        checked = run_library(path, symbol, given, cores)
        worst = max(worst, largest_error(symbol, checked.outputs, right))
        expected = tuple(one.astype(np.float64) for one in right)
    peak = max((float(np.abs(one).max(initial=0.0)) for one in expected), default=0.0)
    return replace(
        built,
        median_s=checked.median_s,
        ci95_s=checked.ci95_s,
        verified=True,
        max_rel_error=worst,
        expected=expected,
        tolerance=TOLERANCE * max(1.0, peak),
    )


def _random_inputs(built: ExportKernel) -> list[Array]:
    """Normal values; of integers, which may be indices, 0 and 1."""
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal(argument.shape).astype(argument.dtype)
        if argument.dtype.startswith("float")
        else rng.integers(0, 2, argument.shape).astype(argument.dtype)
        for argument in built.inputs
    ]


def largest_error(symbol: str, got: Sequence[Array], right: Sequence[Array]) -> float:
    """Of all outputs, relative to the greatest value of each. Raises ModelWrong where it is too large or no number."""
    worst = 0.0
    for number, (one, other) in enumerate(zip(got, right, strict=True)):
        peak = float(np.abs(other.astype(np.float64)).max(initial=0.0))
        difference = float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max(initial=0.0))
        error = difference / peak if peak > 0 else difference
        if not error <= TOLERANCE:
            raise ModelWrong(
                f"output {number} of {symbol} is off by {error:.3g} of its greatest value, {TOLERANCE:.0e} is allowed; "
                "nothing was exported"
            )
        worst = max(worst, error)
    return worst
