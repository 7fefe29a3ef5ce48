"""Networks of 8-bit integers: what is written, what it loses, and what stays in float."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from benchmarks.models.exact_runtime import exact_session
from tests.support import float_networks as nets
from tests.support.float_networks import Array, node
from tests.support.graph_values import graph_outputs
from tuner.models.errors import ModelRefused
from tuner.models.files.onnx_file import read_model
from tuner.models.quantize.quantizer import quantize
from tuner.models.quantize.ranges import METHODS, Method
from tuner.models.quantize.result import Options, Quantized, quantized_from, quantized_to
from tuner.models.reading import read_graph
from tuner.models.reference.onnx_evaluation import evaluate


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def rows(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def run(content: bytes, x: Array) -> Array:
    """By ONNX Runtime."""
    (y,) = exact_session(content).run(None, {"x": x})
    return np.asarray(y)


def apart(y: Array, right: Array) -> float:
    return float(np.linalg.norm(y - right) / np.linalg.norm(right))


def ops(content: bytes) -> list[str]:
    return [entry.op_type for entry in onnx.load_from_string(content).graph.node]


def images(rng: np.random.Generator, **options: Any) -> tuple[bytes, Array, Quantized]:
    content, x = nets.images(rng), rows(rng, 24, 3, 9, 9)
    return content, x, quantize(content, {"x": x}, {}, Options(**options))


def test_every_kind_of_layer_becomes_integers_that_runtimes_take(
    rng: np.random.Generator,
) -> None:
    content, x, result = images(rng)
    assert {layer.op for layer in result.layers if layer.quantized} == {
        "Add", "AveragePool", "Concat", "Conv", "GlobalAveragePool", "Gemm",
    }  # fmt: skip
    assert result.left == () and result.choice.floats == 0
    assert result.choice.nbytes < result.float_bytes * 0.5
    right = run(content, x)
    assert apart(run(result.content, x), right) < 0.05
    assert result.choice.loss == pytest.approx(apart(run(result.content, x), right), rel=0.2)
    kinds = {t.data_type for t in onnx.load_from_string(result.content).graph.initializer}
    assert onnx.TensorProto.INT8 in kinds and onnx.TensorProto.UINT8 in kinds


def test_its_graph_computes_what_the_evaluator_does(rng: np.random.Generator) -> None:
    _, x, result = images(rng)
    shapes = {"n": len(x)}
    (right,) = evaluate(read_model(result.content, shapes), [x])
    (y,) = graph_outputs(read_graph(result.content, shapes), [x])
    assert apart(y, right) < 0.01


def test_an_open_extent_stays_open(rng: np.random.Generator) -> None:
    _, x, result = images(rng)
    assert run(result.content, x[:1]).shape == (1, 5)


@pytest.mark.parametrize("method", METHODS)
def test_a_trained_network_answers_as_before(rng: np.random.Generator, method: Method) -> None:
    centres = rows(rng, 6, 12) * 1.5
    labels = np.arange(600) % 6
    x = (centres[labels] + rows(rng, 600, 12)).astype(np.float32)
    content = nets.trained_classifier(x[:300], labels[:300], 24, 60, rng)
    result = quantize(content, {"x": x[:300]}, {}, Options(method=method))
    before, after = (
        float(np.mean(run(net, x[300:]).argmax(1) == labels[300:]))
        for net in (content, result.content)
    )
    assert before > 0.85, "the network was trained"
    assert after >= before - 0.005
    assert result.choice.agreement is not None and result.choice.agreement > 0.95


def test_a_layer_that_loses_much_stays_in_float(rng: np.random.Generator) -> None:
    """One input is a thousand times as large as the others and has weights of a
    thousandth: eight bits for all of them leave nothing of the small ones."""
    scale = np.where(np.arange(16) == 0, 1000, 1).astype(np.float32)
    weights = {"w1": rows(rng, 16, 16) / scale[:, None], "w2": rows(rng, 16, 4)}
    content = nets.network(
        [node("MatMul", "x w1", "h"), node("Tanh", "h", "t"), node("MatMul", "t w2", "y")],
        weights, ["n", 16], ["n", 4],
    )  # fmt: skip
    x = rows(rng, 64, 16) * scale
    result = quantize(content, {"x": x}, {}, Options(max_loss=0.1))
    assert [(layer.name, layer.quantized) for layer in result.layers] == [
        ("h", False), ("y", True),
    ]  # fmt: skip
    assert result.layers[0].loss > 0.1 > result.layers[1].loss
    assert [choice.chosen for choice in result.choices] == [False, True, False]
    assert (result.choices[-1].floats, result.choices[-1].loss) == (2, 0.0)
    assert result.choices[-1].nbytes == result.float_bytes
    assert apart(run(result.content, x), run(content, x)) < 0.1
    with pytest.raises(ModelRefused, match="raise --max-loss"):
        quantize(content, {"x": x}, {}, Options(max_loss=0.0))


def test_operators_that_are_kept_or_have_no_form_say_why(rng: np.random.Generator) -> None:
    weights = {"w1": rows(rng, 8, 8), "w2": rows(rng, 8, 8), "k": rows(rng, 8, 1, 2, 2)}
    content = nets.network(
        [
            node("MatMul", "x w1", "h"), node("MatMul", "h w2", "g"),
            node("Reshape", "g shape", "image"), node("ConvTranspose", "image k", "y"),
        ],
        weights | {"shape": np.array([-1, 8, 1, 1])}, [4, 8], [4, 1, 2, 2],
    )  # fmt: skip
    result = quantize(content, {"x": rows(rng, 4, 8)}, {}, Options(keep=("h",)))
    assert {left.name: left.reason for left in result.left} == {
        "h": "is kept as asked", "y": "has no form in 8-bit integers here",
    }  # fmt: skip
    assert [layer.name for layer in result.layers] == ["g"]
    with pytest.raises(ModelRefused, match="--keep has 'nothing'"):
        quantize(content, {"x": rows(rng, 4, 8)}, {}, Options(keep=("nothing",)))


def test_a_pooled_tensor_has_the_integers_of_what_is_pooled(rng: np.random.Generator) -> None:
    _, _, result = images(rng)
    constants = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in onnx.load_from_string(result.content).graph.initializer
    }
    scales = [constants[f"quantized/{name}/scale"] for name in ("sum", "m")]
    assert scales[0] == scales[1]


def test_a_channel_of_tiny_weights_keeps_its_bias(rng: np.random.Generator) -> None:
    weights = rows(rng, 8, 4)
    weights[:, 0] *= 1e-12
    weights[:, 1] = 0
    bias = np.array([3, -2, 1, 0], np.float32)
    content = nets.network([node("Gemm", "x w b", "y")], {"w": weights, "b": bias}, [4, 8], [4, 4])
    x = rows(rng, 4, 8)
    result = quantize(content, {"x": x}, {}, Options())
    assert np.allclose(run(result.content, x)[:, :2], bias[:2], atol=1e-5)


def test_normalisations_are_folded_first_and_old_files_are_converted(
    rng: np.random.Generator,
) -> None:
    constants = {
        "w": rows(rng, 4, 2, 3, 3), "scale": rows(rng, 4), "bias": rows(rng, 4),
        "mean": rows(rng, 4), "variance": np.abs(rows(rng, 4)) + 1,
    }  # fmt: skip
    content = nets.network(
        [node("Conv", "x w", "c"), node("BatchNormalization", "c scale bias mean variance", "y")],
        constants, [2, 2, 5, 5], [2, 4, 3, 3], opset=9,
    )  # fmt: skip
    x = rows(rng, 2, 2, 5, 5)
    result = quantize(content, {"x": x}, {}, Options())
    assert "BatchNormalization" not in ops(result.content)
    assert apart(run(result.content, x), run(content, x)) < 0.03


def test_networks_that_cannot_be_quantised_are_refused(rng: np.random.Generator) -> None:
    _, x, result = images(rng)
    with pytest.raises(ModelRefused, match=r"quantised already: .* is DequantizeLinear"):
        quantize(result.content, {"x": x}, {}, Options())
    plain = nets.network([node("Relu", "x", "y")], {}, [4], [4])
    with pytest.raises(ModelRefused, match="no operator that can be quantised"):
        quantize(plain, {"x": rows(rng, 4)}, {}, Options())
    roots = nets.network(
        [node("Sqrt", "x", "s"), node("MatMul", "s w", "y")], {"w": rows(rng, 4, 4)}, [2, 4], [2, 4]
    )
    with pytest.raises(ModelRefused, match="computes NaN or infinity for 's'"):
        quantize(roots, {"x": -np.ones((2, 4))}, {}, Options())
    with pytest.raises(ModelRefused, match="no ONNX model"):
        quantize(b"\xff no protocol buffer", {"x": x}, {}, Options())


def test_products_of_computed_factors_and_shared_weights(rng: np.random.Generator) -> None:
    content = nets.network(
        [
            node("MatMul", "x w", "q"), node("MatMul", "x w", "k"),
            node("Transpose", "k", "kt", perm=[0, 2, 1]), node("MatMul", "q kt", "scores"),
            node("Softmax", "scores", "shares"), node("MatMul", "shares q", "y"),
        ],
        {"w": rows(rng, 8, 8) / 3}, [2, 6, 8], [2, 6, 8],
    )  # fmt: skip
    x = rows(rng, 16, 6, 8)
    result = quantize(content, {"x": x}, {}, Options())
    assert len(result.layers) == 4 and all(layer.quantized for layer in result.layers)
    assert apart(run(result.content, x[:2]), run(content, x[:2])) < 0.05


def test_a_result_travels_between_processes(rng: np.random.Generator) -> None:
    result = images(rng)[2]
    assert quantized_from(quantized_to(result)) == result


def test_less_time_measures_fewer_rows(rng: np.random.Generator) -> None:
    content, x = nets.images(rng, batch=1), rows(rng, 24, 3, 9, 9)
    result = quantize(content, {"x": x}, {}, Options(seconds=0.0))
    assert (result.rows, result.measured_rows) == (24, 1)


def test_kernels_are_those_of_each_choices_network(rng: np.random.Generator) -> None:
    """Of one row, where the network leaves their number open."""
    content = nets.network(
        [node("MatMul", "x w", "y")], {"w": rows(rng, 16, 4)}, ["n", 16], ["n", 4]
    )
    result = quantize(content, {"x": rows(rng, 64, 16)}, {}, Options(kernels=True))
    integers, floats = ([part.workload.expression for part in parts] for parts in result.kernels)
    (product,) = floats
    assert {tensor.dtype for tensor in product.inputs} == {"float32"}
    assert product.shapes[product.outputs[0]] == (1, 4)
    assert {"uint8", "int8"} <= {tensor.dtype for each in integers for tensor in each.inputs}
    assert quantized_from(quantized_to(result)).kernels == result.kernels


def test_losses_are_sorted_out_by_layer(rng: np.random.Generator) -> None:
    _, _, result = images(rng)
    losses: Sequence[float] = [choice.loss for choice in result.choices]
    assert [*losses] == sorted(losses, reverse=True)
    assert all(0 < layer.loss < 0.05 for layer in result.layers)
