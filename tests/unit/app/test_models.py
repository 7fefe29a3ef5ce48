"""From a model's promoted kernels to its library: checked against ONNX's evaluator,
exported, verified; wrong ones are not."""

from __future__ import annotations

import ctypes
import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.support import onnx_networks as nets
from tests.support.measured_target import with_rates
from tests.support.promoted_models import promote_defaults, runner_up
from tests.support.targets import host_target
from tuner.app.export.verdicts import Retimed
from tuner.app.export.verify import verify_export
from tuner.app.models.command_time import CommandTime
from tuner.app.models.tuned_model import TunedModel, export_model, policy_of, submit_model
from tuner.db import jobs
from tuner.db.engine import Database
from tuner.export.artifacts import ArtifactStore
from tuner.models.arrays import bits, plain_values
from tuner.models.importer import import_model
from tuner.models.reading import read_graph
from tuner.models.reference.accuracy import relative_error
from tuner.models.reference.check_inputs import check_inputs
from tuner.models.reference.evaluation import evaluate_graph
from tuner.models.workloads import workloads_of
from tuner.runtime.loader import Library
from tuner.settings import Settings
from tuner.workers.jobs.model_library import (
    Model,
    ModelUnfinished,
    ModelWrong,
    kernels_of,
    largest_error,
    others_of,
)


def small() -> Model:
    content = nets.serialized(nets.perceptron(rows=2, sizes=(16, 8)))
    return Model(content=content, shapes={}, graph=read_graph(content, {}))


@pytest.mark.slow
def test_kernels_race_inside_the_model_while_there_is_time(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    model, target = small(), host_target()
    promote_defaults(database, model, settings, runners_up=True)

    def exported(name: str, seconds: float | None) -> TunedModel:
        command, out = CommandTime(seconds=seconds), tmp_path / name
        return export_model(
            database, model, target, settings, out, "net", signing_key=None, command=command
        )

    assert exported("late", 1.0).race is None
    race = exported("early", None).race
    assert race is not None and race.raced == len(workloads_of(model.graph))
    manifest = json.loads((tmp_path / "early/manifest.json").read_text())
    assert manifest["functions"][0]["provenance"]["race"] == race.document
    y = Library(tmp_path / "early/lib/libnet.so").function("net_run")(np.ones((2, 16), np.float32))
    np.testing.assert_allclose(y.sum(axis=1), np.ones(2), rtol=1e-5)
    store = ArtifactStore(settings.artifacts)
    for part in workloads_of(model.graph):  # what is lost from the store does not race
        store.path(runner_up(part.workload, store)["object"]).unlink()
    assert exported("lost", None).race is None


def test_a_runner_up_names_the_race_that_it_was_in(database: Database, settings: Settings) -> None:
    """Where another job has promoted kernels since those of the model were read."""
    model, target, store = small(), host_target(), ArtifactStore(settings.artifacts)
    promote_defaults(database, model, settings, versions={"tvm": "1"})
    promoted = kernels_of(database, model, target, 1, store, policy_of(settings))
    promote_defaults(database, model, settings, runners_up=True, versions={"tvm": "2"})
    others = others_of(database, promoted, target, 1, store)
    assert [kernel.provenance["versions"]["tvm"] for kernel in promoted.values()] == ["1", "1"]
    beside = [kernel for kernels in others.values() for kernel in kernels]
    assert [kernel.provenance["versions"]["tvm"] for kernel in beside] == ["2", "2"]


@pytest.mark.slow
def test_chains_are_tuned_and_compared_while_there_is_time(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    content = nets.serialized(nets.perceptron(rows=2, sizes=(16, 32, 8)))
    plain = Model(content=content, shapes={}, graph=read_graph(content, {}))
    target = with_rates(host_target(), bytes_per_s=1e9, flops=1e12)
    assert CommandTime(seconds=60.0).with_chains([plain], target) == [plain]
    (model,) = CommandTime(seconds=None).with_chains([plain], target)
    assert [len(chain.parts) for chain in model.chains] == [2]
    job = submit_model(database, [model], target, settings, seconds=None)
    needed = [part.workload.key for part in workloads_of(model.graph)]
    (chain,) = job.settings["chains"]
    assert [task.workload for task in job.tasks] == [*needed, chain]
    assert {*job.settings["chains"][chain]} <= {*needed}
    promote_defaults(database, model, settings)

    def exported(name: str, seconds: float | None) -> TunedModel:
        command, out = CommandTime(seconds=seconds), tmp_path / name
        return export_model(
            database, model, target, settings, out, "net", signing_key=None, command=command
        )

    assert exported("late", 1.0).chains is None
    race = exported("early", None).chains
    assert race is not None and [each.workload for each in race.raced] == [chain]
    manifest = json.loads((tmp_path / "early/manifest.json").read_text())
    assert manifest["functions"][0]["provenance"]["chains"] == race.document
    for name in ("late", "early"):
        run = Library(tmp_path / name / "lib/libnet.so").function("net_run")
        np.testing.assert_allclose(run(np.ones((2, 16), np.float32)).sum(axis=1), 1, rtol=1e-5)


def test_a_model_is_exported_and_verified(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    model, out = small(), tmp_path / "out"
    with pytest.raises(ModelUnfinished, match="has no kernel yet"):
        export_model(database, model, host_target(), settings, out, "small", signing_key=None)
    assert not out.exists()
    promote_defaults(database, model, settings)
    tuned = export_model(
        database, model, host_target(), settings, out, "small",
        signing_key=None, frameworks=("torch", "jax", "onnxruntime"),
    )  # fmt: skip
    assert tuned.max_rel_error <= 1e-4 and tuned.median_s > 0
    y = Library(out / "lib/libsmall.so").function("small_run")(np.ones((2, 16), np.float32))
    np.testing.assert_allclose(y.sum(axis=1), np.ones(2), rtol=1e-5)
    assert (out / "small/jax.py").exists() and (out / "huggingface").is_dir()
    assert ctypes.CDLL(str(out / "lib/libsmall.so")).RegisterCustomOps
    verdict = verify_export(out, settings).functions[0].result
    assert isinstance(verdict, Retimed), verdict
    assert verdict.max_rel_error <= 1e-4


def test_another_models_kernels_are_found_out(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    """The graph of one model with the file of another: the outputs differ, and nothing
    is exported."""
    model, out = small(), tmp_path / "out"
    promote_defaults(database, model, settings)
    other = nets.serialized(nets.perceptron(rows=2, sizes=(16, 8), seed=9))
    with pytest.raises(ModelWrong, match="nothing was exported"):
        export_model(
            database,
            replace(model, content=other),
            host_target(),
            settings,
            out,
            "small",
            signing_key=None,
        )
    assert not out.exists()


def windows() -> Model:
    """Two convolutions with Winograd's algorithm."""
    make, value = nets.Maker(seed=4), "x"
    for _ in range(2):
        value = make.add("Relu", make.conv(value, (8, 8), 3))
    net = make.model({"x": (1, 8, 6, 6)}, make.add("GlobalAveragePool", value), (1, 8, 1, 1))
    content = nets.serialized(net)
    return Model(content=content, shapes={}, graph=read_graph(content, {}))


@pytest.mark.slow
def test_a_bound_on_the_error_lets_kernels_be_fast(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    model, target, out = windows(), host_target(), tmp_path / "out"
    allowed = settings.model_copy(update={"max_error": 1e-3})
    job = submit_model(database, [model], target, allowed, seconds=None)
    assert len(job.tasks) == len(workloads_of(model.graph)) + 1
    assert job.settings["max_error"] == 1e-3
    promote_defaults(database, model, allowed)
    tuned = export_model(database, model, target, allowed, out, "small", signing_key=None)
    choice = tuned.numerics
    assert choice is not None and len(choice.nodes) == 2
    strict, *others = choice.tried
    assert strict.fast == frozenset() and all(other.fast for other in others)
    assert 0 < choice.chosen.error <= 1e-3 and 0 < tuned.max_rel_error <= 1e-3
    assert {share.workload.numerics for share in tuned.shares if share.calls == 2} <= {
        "fast" if choice.chosen.fast else "strict"
    }
    manifest = json.loads((out / "manifest.json").read_text())
    (function,) = manifest["functions"]
    assert function["provenance"]["numerics"] == choice.document
    unbounded = export_model(
        database, model, target, settings, tmp_path / "strict", "small", signing_key=None
    )
    assert unbounded.numerics is None
    assert {share.workload.numerics for share in unbounded.shares} == {"strict"}


@pytest.mark.slow
def test_a_bound_that_strict_kernels_miss_is_an_error(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    model, out = windows(), tmp_path / "out"
    tight = settings.model_copy(update={"max_error": 1e-9})
    promote_defaults(database, model, tight)
    with pytest.raises(ModelWrong, match=r"1e-09 is allowed; nothing was exported"):
        export_model(database, model, host_target(), tight, out, "small", signing_key=None)
    assert not out.exists()


def test_a_models_job_has_its_kernels_and_their_calls(
    database: Database, settings: Settings
) -> None:
    model = small()
    job = submit_model(database, [model], host_target(), settings, seconds=30.0)
    assert job.kind == jobs.MODEL and len(job.tasks) == 2
    assert sum(job.settings["calls"].values()) == len(model.graph.nodes)
    assert job.settings["model"] == sha256(model.content).hexdigest()
    # Its content may be large, and whoever has submitted it makes the library.
    assert not ArtifactStore(settings.artifacts).exists(job.settings["model"])


def test_what_is_no_number_is_wrong() -> None:
    with pytest.raises(ModelWrong):
        largest_error("f", [np.array([np.nan])], [np.array([1.0])])
    with pytest.raises(ModelWrong):
        largest_error("f", [np.array([np.inf, 1.0])], [np.array([-np.inf, 1.0])])
    undefined = np.array([np.nan, np.inf, 2.0])  # a logarithm of random numbers, say
    assert largest_error("f", [undefined], [undefined.copy()]) == 0.0
    assert largest_error("f", [np.array([3e-41])], [np.array([2e-41])]) < 1e-6
    assert largest_error("f", [np.array([1.0, 2.00001])], [np.array([1.0, 2.0])]) == pytest.approx(
        5e-6, rel=1e-2
    )


def narrow(kind: int, dtype: Any) -> Model:
    """Convolution, layer norm, product and softmax; the norm's squares add up to more than
    the greatest float16."""
    rng, size = np.random.default_rng(0), 32

    def constant(name: str, values: Any) -> Any:
        return numpy_helper.from_array(np.asarray(values).astype(dtype), name)

    constants = [
        constant("w1", 100 * rng.standard_normal((size, 4, 3, 3))),
        constant("g", 1 + 0.1 * rng.standard_normal(size)),
        constant("b", 0.1 * rng.standard_normal(size)),
        constant("w2", rng.standard_normal((size, size)) / 6),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], pads=[1] * 4),
        helper.make_node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("LayerNormalization", ["t", "g", "b"], ["n"]),
        helper.make_node("MatMul", ["n", "w2"], ["m"]),
        helper.make_node("Softmax", ["m"], ["s"]),
    ]
    shapes = {"x": [1, 4, 5, 5], "n": [1, 5, 5, size], "s": [1, 5, 5, size]}
    values = {n: helper.make_tensor_value_info(n, kind, shape) for n, shape in shapes.items()}
    graph = helper.make_graph(nodes, "narrow", [values["x"]], [values["n"], values["s"]], constants)
    content = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10
    ).SerializeToString()
    return Model(content=content, shapes={}, graph=import_model(content))


@pytest.mark.parametrize(
    ("kind", "dtype", "unit"),
    [
        (onnx.TensorProto.FLOAT16, np.float16, 2.0**-11),
        (onnx.TensorProto.BFLOAT16, ml_dtypes.bfloat16, 2.0**-8),
    ],
)
@pytest.mark.slow
def test_models_of_narrow_floats_sum_in_float32(
    database: Database, settings: Settings, tmp_path: Path, kind: int, dtype: Any, unit: float
) -> None:
    """Their outputs are within few roundings of float64's, and are exported so."""
    model = narrow(kind, dtype)
    promote_defaults(database, model, settings)
    out = tmp_path / "out"
    tuned = export_model(database, model, host_target(), settings, out, "half", signing_key=None)
    assert tuned.max_rel_error < 8 * unit
    (x,) = check_inputs(model.graph, {}, seed=7)
    got = Library(out / "lib/libhalf.so").function("half_run")(bits(x))
    exact = evaluate_graph(model.graph, [x])
    for array, name in zip(got, model.graph.outputs, strict=True):
        values = plain_values(array, model.graph.tensor(name).dtype).astype(np.float64)
        assert np.isfinite(values).all()
        assert relative_error(values, exact[name].astype(np.float64)) <= 2 * unit
