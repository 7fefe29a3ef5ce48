"""From a model's promoted kernels to its library: checked against ONNX's evaluator, exported, verified; wrong ones are not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.models import nets
from db import artifacts, jobs, kernels, targets, workloads
from db.engine import Database, open_database
from tuner.app.models import export_model, submit_model
from tuner.app.verify import Retimed, verify_export
from tuner.export.artifacts import ArtifactStore
from tuner.lowering.compiler import compile_kernel
from tuner.models.reading import read_graph
from tuner.models.workloads import workloads_of
from tuner.runtime.loader import Library
from tuner.settings import Settings, load_settings
from tuner.target.detect import detect_cpu
from tuner.workload.spec import to_document
from workers.model_library import Model, ModelUnfinished, ModelWrong, largest_error


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(tmp_path / "models.db")
    yield opened
    opened.close()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    given = {"data_dir": str(tmp_path), "threads": 1, "trials": 2}
    return load_settings(given, given_as="argument {}").values


def small() -> Model:
    content = nets.serialized(nets.perceptron(rows=2, sizes=(16, 8)))
    return Model(content=content, shapes={}, graph=read_graph(content, {}))


def promote_defaults(database: Database, model: Model, settings: Settings) -> None:
    """The default schedule of each of its workloads as the promoted kernel."""
    target, store = detect_cpu(), ArtifactStore(settings.artifacts)
    for one in workloads_of(model.graph):
        made = compile_kernel(workload=one.workload, target=target, threads=1, config=None, symbol=f"k{one.workload.key[:8]}")
        digest = store.put(made.object_code)
        with database.write() as session:
            artifacts.remember(session, sha256=digest, size_bytes=len(made.object_code), kind="object")
            new = kernels.NewKernel(
                workload=workloads.remember(session, one.workload, to_document(one.workload)),
                target=targets.remember(session, target),
                threads=1,
                schedule={"object": digest, "symbol": made.symbol},
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
            kernels.promote(session, new)


def test_a_model_is_exported_and_verified(database: Database, settings: Settings, tmp_path: Path) -> None:
    model, out = small(), tmp_path / "out"
    with pytest.raises(ModelUnfinished, match="has no kernel yet"):
        export_model(database, model, detect_cpu(), settings, out, "small", signing_key=None)
    assert not out.exists()
    promote_defaults(database, model, settings)
    tuned = export_model(database, model, detect_cpu(), settings, out, "small", signing_key=None)
    assert tuned.max_rel_error <= 1e-4 and tuned.median_s > 0
    y = Library(out / "lib/libsmall.so").function("small_run")(np.ones((2, 16), np.float32))
    np.testing.assert_allclose(y.sum(axis=1), np.ones(2), rtol=1e-5)
    verdict = verify_export(out, settings).functions[0].result
    assert isinstance(verdict, Retimed), verdict
    assert verdict.max_rel_error <= 1e-4


def test_another_models_kernels_are_found_out(database: Database, settings: Settings, tmp_path: Path) -> None:
    """The graph of one model with the file of another: the outputs differ, and nothing is exported."""
    model, out = small(), tmp_path / "out"
    promote_defaults(database, model, settings)
    other = nets.serialized(nets.perceptron(rows=2, sizes=(16, 8), seed=9))
    with pytest.raises(ModelWrong, match="nothing was exported"):
        export_model(database, replace(model, content=other), detect_cpu(), settings, out, "small", signing_key=None)
    assert not out.exists()


def test_a_models_job_has_its_kernels_and_their_calls(database: Database, settings: Settings) -> None:
    model = small()
    job = submit_model(database, model, detect_cpu(), settings)
    assert job.kind == jobs.MODEL and len(job.tasks) == 2
    assert sum(job.settings["calls"].values()) == len(model.graph.nodes)
    assert ArtifactStore(settings.artifacts).get(job.settings["model"]) == model.content


def test_what_is_no_number_is_wrong() -> None:
    with pytest.raises(ModelWrong):
        largest_error("f", [np.array([np.nan])], [np.array([1.0])])
    assert largest_error("f", [np.array([1.0, 2.00001])], [np.array([1.0, 2.0])]) == pytest.approx(5e-6, rel=1e-2)
