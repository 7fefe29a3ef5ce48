"""From a model's promoted kernels to its library: checked against ONNX's evaluator,
exported, verified; wrong ones are not."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from benchmarks.models import nets
from tests.support.model_kernels import compiled, fast_config
from tests.support.targets import host_target
from tuner.app.export.verdicts import Retimed
from tuner.app.export.verify import verify_export
from tuner.app.models.command_time import CommandTime
from tuner.app.models.family import Batch, Listed, family_of, listed_family
from tuner.app.models.tuned_model import (
    TunedModel,
    export_family,
    export_model,
    policy_of,
    submit_model,
)
from tuner.db import artifacts, jobs, promotions, targets, workloads
from tuner.db.engine import Database, open_database
from tuner.db.kernels import RUNNERS_UP
from tuner.errors import UsageError
from tuner.export.artifacts import ArtifactStore
from tuner.lowering.compiler import compile_kernel
from tuner.models.accuracy import relative_error
from tuner.models.arrays import bits, plain_values
from tuner.models.check_inputs import check_inputs
from tuner.models.evaluation import evaluate_graph
from tuner.models.importer import import_model
from tuner.models.reading import read_graph
from tuner.models.workloads import workloads_of
from tuner.runtime.loader import Library, aligned_empty
from tuner.runtime.signature import ShapeError
from tuner.settings import Settings, load_settings
from tuner.target.target import Bandwidth, Limits, Target
from tuner.workers.jobs.model_library import Model, ModelUnfinished, ModelWrong, largest_error
from tuner.workload.spec import to_document
from tuner.workload.workload import Workload


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


def measured(target: Target) -> Target:
    """With limits, which decide the members."""
    bandwidth = Bandwidth(working_set_bytes=1 << 20, read=1e11, write=1e11, copy=1e11)
    return replace(
        target, limits=Limits(fma_flops=1e11, fma_flops_best=1e11, bandwidth=(bandwidth,))
    )


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


@pytest.mark.slow
def test_chains_are_tuned_and_compared_while_there_is_time(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    content = nets.serialized(nets.perceptron(rows=2, sizes=(16, 32, 8)))
    plain = Model(content=content, shapes={}, graph=read_graph(content, {}))
    slow = Bandwidth(working_set_bytes=1 << 20, read=1e9, write=1e9, copy=1e9)
    limits = Limits(fma_flops=1e12, fma_flops_best=1e12, bandwidth=(slow,))
    target = replace(host_target(), limits=limits)
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


def with_batch(net: Any) -> bytes:
    """The same model with an open first extent."""
    for value in (*net.graph.input, *net.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    content: bytes = net.SerializeToString()
    return content


@pytest.mark.long
def test_one_function_serves_a_range_of_batches(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    """Rows of 40 bytes: later blocks do not begin where aligned loads may, so they are copied."""
    net, out, target = (
        nets.perceptron(rows=2, sizes=(16, 10)),
        tmp_path / "out",
        measured(host_target()),
    )
    content = with_batch(net)
    family = family_of(content, {}, Batch(name="batch", low=1, high=9), target)
    assert 1 < len(family.members) <= 4 and max(family.members) == 9
    for model in family.members.values():
        promote_defaults(database, model, settings)
    assert (
        export_family(
            database, family, target, settings, out, "nets", signing_key=None
        ).max_rel_error
        <= 1e-4
    )
    run = Library(out / "lib/libnets.so").function("nets_run")
    for batch in range(1, 10):
        x = np.random.default_rng(batch).standard_normal((batch, 16)).astype(np.float32)
        (right,) = ReferenceEvaluator(onnx.load_model_from_string(content)).run(None, {"x": x})
        np.testing.assert_allclose(run(x), right, rtol=1e-4, atol=1e-6)
    with pytest.raises(ShapeError, match="range 1 to 9"):
        run(np.ones((10, 16), np.float32))
    assert isinstance(verify_export(out, settings).functions[0].result, Retimed)


def sequences() -> Any:
    """Words that attend to each other: the length is a middle and a last dimension."""
    make = nets.Maker()
    scores = make.add("MatMul", "x", make.add("Transpose", "x", perm=[0, 2, 1]))
    weights = make.add("Softmax", scores, axis=2)
    net = make.model({"x": (2, 8, 16)}, make.add("MatMul", weights, "x"), (2, 8, 16))
    for value in (net.graph.input[0], net.graph.output[0]):
        value.type.tensor_type.shape.dim[1].dim_param = "words"
    net.graph.output.append(helper.make_tensor_value_info(weights, 1, [2, "words", "words"]))
    return net


@pytest.mark.slow
def test_one_function_serves_listed_lengths(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    net, out = sequences(), tmp_path / "out"
    family = listed_family(net.SerializeToString(), {}, Listed(name="words", extents=(3, 8)))
    assert list(family.members) == [3, 8] and family.rows.shown == (0, 1)
    for model in family.members.values():
        promote_defaults(database, model, settings)
    export_family(database, family, host_target(), settings, out, "nets", signing_key=None)
    library = Library(out / "lib/libnets.so")
    run = library.function("nets_run")
    for words in (8, 3):
        x = np.random.default_rng(words).standard_normal((2, words, 16)).astype(np.float32)
        for got, right in zip(run(x), ReferenceEvaluator(net).run(None, {"x": x}), strict=True):
            assert got.shape == right.shape
            np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-6)
    with pytest.raises(ShapeError, match="words is 5, which is none of 3, 8"):
        run(np.ones((2, 5, 16), np.float32))
    buffers = [aligned_empty(shape, "float32") for shape in ((2, 8, 16), (2, 8, 16), (2, 8, 8))]
    function = ctypes.CDLL(str(library.path)).nets_run
    function.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64]
    status = [function(*(b.ctypes.data for b in buffers), words) for words in (3, 4, 8, 9)]
    assert status == [0, 4, 0, 4]  # TUNER_ERROR_EXTENT
    assert "one of 3, 8" in (out / "include/nets.h").read_text()
    manifest = json.loads((out / "manifest.json").read_text())["functions"][0]
    listed = manifest["ranges"]["words"]["listed"]
    assert [entry["extent"] for entry in listed] == [3, 8]
    assert listed[0]["shapes"] == [[2, 3, 16], [2, 3, 16], [2, 3, 3]]
    assert isinstance(verify_export(out, settings).functions[0].result, Retimed)


@pytest.mark.parametrize(
    ("extents", "says"),
    [((8,), "lists 1 extents"), ((8, 8), "twice"), ((8, 3), "ascending"), ((0, 3), "at least 1"),
     (tuple(range(1, 10)), "2 to 8")],
)  # fmt: skip
def test_listed_extents_are_a_few_and_ascend(extents: tuple[int, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Listed(name="words", extents=extents)


@pytest.mark.long
def test_a_model_whose_rows_are_not_apart_is_found_out(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    """Softmax over the batch: each row's result depends on all others."""
    net, out, target = (
        nets.perceptron(rows=2, sizes=(16, 16)),
        tmp_path / "out",
        measured(host_target()),
    )
    next(node for node in net.graph.node if node.op_type == "Softmax").attribute[0].i = 0
    family = family_of(with_batch(net), {}, Batch(name="batch", low=2, high=7), target)
    for model in family.members.values():
        promote_defaults(database, model, settings)
    with pytest.raises(ModelWrong, match="batch="):
        export_family(database, family, target, settings, out, "nets", signing_key=None)
    assert not out.exists()


def test_a_batch_has_to_come_first() -> None:
    make = nets.Maker()
    net = make.model(
        {"x": (2, 16)}, make.add("Transpose", make.add("Relu", "x"), perm=[1, 0]), (16, 2)
    )
    net.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    net.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "batch"
    with pytest.raises(UsageError, match="'y' has shape"):
        family_of(
            net.SerializeToString(), {}, Batch(name="batch", low=1, high=4), measured(host_target())
        )


def test_a_models_job_has_its_kernels_and_their_calls(
    database: Database, settings: Settings
) -> None:
    model = small()
    job = submit_model(database, [model], host_target(), settings, seconds=30.0)
    assert job.kind == jobs.MODEL and len(job.tasks) == 2
    assert sum(job.settings["calls"].values()) == len(model.graph.nodes)
    assert ArtifactStore(settings.artifacts).get(job.settings["model"]) == model.content


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
