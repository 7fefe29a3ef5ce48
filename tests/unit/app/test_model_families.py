"""One function for several extents of a model: a range of batches, or listed lengths."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.support import onnx_networks as nets
from tests.support.measured_target import with_rates
from tests.support.promoted_models import promote_defaults
from tests.support.targets import host_target
from tuner.app.export.verdicts import Retimed
from tuner.app.export.verify import verify_export
from tuner.app.models.family import Batch, Listed, family_of, listed_family
from tuner.app.models.tuned_model import export_family
from tuner.db.engine import Database
from tuner.errors import UsageError
from tuner.runtime.loader import Library, aligned_empty
from tuner.runtime.signature import ShapeError
from tuner.settings import Settings
from tuner.target.target import Target
from tuner.workers.jobs.model_library import ModelWrong


def measured(target: Target) -> Target:
    """With limits, which decide the members."""
    return with_rates(target, bytes_per_s=1e11, flops=1e11)


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
