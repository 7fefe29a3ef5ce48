"""What is read of quantised networks: kernels of integers from end to end, as ONNX Runtime
computes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization

from benchmarks.models.exact_runtime import exact_session
from tests.support import float_networks as nets
from tests.support.float_networks import Array, node
from tests.support.graph_values import graph_outputs
from tuner.models.graph import Graph
from tuner.models.quantize.quantizer import quantize
from tuner.models.quantize.result import Options
from tuner.models.reading import read_graph
from tuner.workload.expression import Binary, walk

ROWS = 4


class Data(quantization.CalibrationDataReader):  # type: ignore[misc]  # has no types
    def __init__(self, x: Array) -> None:
        self.rows = iter([{"x": x}])

    def get_next(self) -> Any:
        return next(self.rows, None)


def by_runtime(content: bytes, x: Array) -> list[Array]:
    return [np.asarray(y) for y in exact_session(content).run(None, {"x": x})]


def float_results(graph: Graph) -> list[str]:
    """The operators whose results are floats, but for outputs of the model."""
    return [
        entry.name
        for entry in graph.expressions
        for name in entry.outputs
        if "float" in entry.tensor(name).dtype
        and name not in {graph.root(output) for output in graph.outputs}
    ]


def apart(y: Array, right: Array) -> float:
    return float(np.linalg.norm(y - right) / np.linalg.norm(right))


@pytest.fixture
def x() -> Array:
    return np.random.default_rng(1).standard_normal((ROWS, 3, 9, 9)).astype(np.float32)


def test_all_between_two_roundings_is_one_kernel_of_integers(x: Array) -> None:
    float_net = nets.images(np.random.default_rng(0))
    content = quantize(float_net, {"x": x}, {}, Options()).content
    graph = read_graph(content, {"n": ROWS})
    assert float_results(graph) == []
    names = [entry.name for entry in graph.expressions]
    assert names.count("conv2d") == 4  # with biases, activations, the residual sum, rounding
    assert len(names) <= 10
    (y,), (right,) = graph_outputs(graph, [x]), by_runtime(content, x)
    assert apart(y, right) < 1e-6


@pytest.mark.parametrize("form", [quantization.QuantFormat.QDQ, quantization.QuantFormat.QOperator])
@pytest.mark.parametrize("weights", [quantization.QuantType.QInt8, quantization.QuantType.QUInt8])
def test_files_of_the_runtimes_own_quantiser(
    tmp_path: Path, x: Array, form: Any, weights: Any
) -> None:
    source, target = tmp_path / "net.onnx", tmp_path / "int8.onnx"
    source.write_bytes(nets.images(np.random.default_rng(0), batch=ROWS))
    quantization.quantize_static(
        source, target, Data(x), quant_format=form,
        activation_type=quantization.QuantType.QUInt8, weight_type=weights,
        per_channel=weights == quantization.QuantType.QInt8,
    )  # fmt: skip
    content = target.read_bytes()
    graph = read_graph(content, {})
    (y,), (right,) = graph_outputs(graph, [x]), by_runtime(content, x)
    assert apart(y.reshape(right.shape), right) < 0.02
    assert float_results(graph) == []


def rounded_twice(rng: np.random.Generator, op: str, zero: int, **attributes: Any) -> bytes:
    """Real numbers of integers, an operator, and its result as integers of other scales."""
    shape, result = [2, 8, 6, 6], [2, 8, 6, 6]
    constants: dict[str, Any] = {
        "s": np.float32(0.02), "z": np.uint8(zero), "t": np.float32(0.031), "u": np.uint8(3),
    }  # fmt: skip
    inputs = "real"
    nodes = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "real")]
    if op == "Conv":
        groups = attributes.get("group", 1)
        constants |= {
            "w": rng.integers(-127, 127, (8, 8 // groups, 3, 3), np.int8, endpoint=True),
            "ws": rng.uniform(1e-3, 4e-3, 8).astype(np.float32), "wz": np.zeros(8, np.int8),
        }  # fmt: skip
        nodes.append(node("DequantizeLinear", "w ws wz", "weight", axis=0))
        inputs = "real weight"
    nodes += [node(op, inputs, "r", **attributes), node("QuantizeLinear", "r t u", "i"),
              node("DequantizeLinear", "i t u", "y")]  # fmt: skip
    arrays = {name: np.asarray(array) for name, array in constants.items()}
    return nets.network(nodes, arrays, shape, result)


@pytest.mark.parametrize("zero", [0, 40, 255])
@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Conv", {"pads": [1, 1, 1, 1]}),
        ("Conv", {"pads": [1, 1, 1, 1], "group": 8}),
        ("Conv", {"pads": [1, 1, 1, 1], "group": 2}),
        ("MaxPool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
        ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ],
)
def test_an_operator_is_within_one_step_of_the_runtimes(
    op: str, attributes: dict[str, Any], zero: int
) -> None:
    rng = np.random.default_rng(zero)
    content = rounded_twice(rng, op, zero, **attributes)
    x = (rng.standard_normal((2, 8, 6, 6)) * 2).astype(np.float32)
    (y,), (right,) = graph_outputs(read_graph(content, {}), [x]), by_runtime(content, x)
    steps = np.abs(y - right) / 0.031
    assert steps.max() < 1.01 and np.mean(steps > 0.5) < 0.005


def test_real_numbers_that_are_rounded_by_the_same_scale_are_not_computed() -> None:
    constants: dict[str, Array] = {
        "s": np.asarray(np.float32(0.1)), "z": np.asarray(np.uint8(9)), "shape": np.array([2, 6]),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "a"),
        node("Transpose", "a", "b", perm=[1, 0]), node("Reshape", "b shape", "c"),
        node("QuantizeLinear", "c s z", "p"), node("DequantizeLinear", "p s z", "y"),
    ]  # fmt: skip
    content = nets.network(nodes, constants, [4, 3], [2, 6])
    graph = read_graph(content, {})
    x = np.linspace(-3, 30, 12, dtype=np.float32).reshape(4, 3)
    (y,) = graph_outputs(graph, [x])
    assert (y == by_runtime(content, x)[0]).all()
    assert float_results(graph) == []


def test_layers_that_differ_in_scales_are_one_workload() -> None:
    rng = np.random.default_rng(0)
    graphs = []
    for zero in (20, 40):
        content = rounded_twice(rng, "Conv", zero, pads=[0, 0, 0, 0], kernel_shape=[3, 3])
        graph = read_graph(content, {})
        graphs.append([str(entry.stages) for entry in graph.expressions])
    assert graphs[0] == graphs[1]


def test_a_float_operator_reads_real_numbers() -> None:
    """Weights in float, on integers: a product of real numbers, as the file says."""
    rng = np.random.default_rng(0)
    constants: dict[str, Array] = {
        "s": np.asarray(np.float32(0.02)), "z": np.asarray(np.uint8(9)),
        "w": rng.standard_normal((6, 4)).astype(np.float32),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "real"),
        node("MatMul", "real w", "y"),
    ]  # fmt: skip
    content = nets.network(nodes, constants, [3, 6], [3, 4])
    x = rng.standard_normal((3, 6)).astype(np.float32)
    (y,) = graph_outputs(read_graph(content, {}), [x])
    assert apart(y, by_runtime(content, x)[0]) < 1e-6


def test_integers_of_32_bits_stand_for_a_bias_alone() -> None:
    constants = {"b": np.array([5, -7], np.int32), "s": np.array([0.5, 0.25], np.float32)}
    nodes = [node("DequantizeLinear", "b s", "real", axis=0), node("Add", "x real", "y")]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 2])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = np.zeros((3, 2), np.float32)
    (y,) = graph_outputs(read_graph(model.SerializeToString(), {}), [x])
    assert (y == np.array([2.5, -1.75], np.float32)).all()


@pytest.mark.parametrize("low", [-0.1, 0.0])
def test_bounds_that_the_integers_have_are_not_computed(low: float) -> None:
    """ReLU is left out where the integers begin at 0, and stays where they begin below."""
    zero = 0 if low == 0 else 60
    constants: dict[str, Array] = {
        "s": np.asarray(np.float32(0.02)), "z": np.asarray(np.uint8(zero)),
        "w": np.random.default_rng(0).integers(-127, 128, (8, 8), np.int8),
        "ws": np.asarray(np.float32(0.01)), "wz": np.asarray(np.int8(0)),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "real"),
        node("DequantizeLinear", "w ws wz", "weight"), node("MatMul", "real weight", "m"),
        node("Relu", "m", "r"), node("QuantizeLinear", "r s z", "i"),
        node("DequantizeLinear", "i s z", "y"),
    ]  # fmt: skip
    content = nets.network(nodes, constants, [5, 8], [5, 8])
    graph = read_graph(content, {})
    x = (np.random.default_rng(1).standard_normal((5, 8)) * 2).astype(np.float32)
    (y,), (right,) = graph_outputs(graph, [x]), by_runtime(content, x)
    assert np.abs(y - right).max() < 0.021 and y.min() >= 0
    product = next(entry for entry in graph.expressions if entry.name == "matmul")
    bounds = [part for stage in product.stages for part in walk(stage.body)
              if isinstance(part, Binary) and part.op in ("max", "min")]  # fmt: skip
    assert len(bounds) == (2 if zero == 0 else 3)
