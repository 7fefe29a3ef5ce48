"""Operators as opsets 1 to 12 have them, against NumPy, by the graph and by ONNX's evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.models import onnx_cases
from tuner.models.errors import ModelRefused
from tuner.models.files.onnx_file import read_model
from tuner.models.reading import read_graph
from tuner.models.reference.evaluation import evaluate_graph
from tuner.models.reference.onnx_evaluation import evaluate

Array = np.ndarray[Any, np.dtype[Any]]
X = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5) / 40 - 1
CHANNELS = np.array([0.5, 2.0, -1.0], np.float32)
ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)


def floats(numbers: Sequence[float]) -> Array:
    return np.array(numbers, np.float32)


def net(
    node: Any,
    shape: Sequence[int],
    opset: int,
    constants: Mapping[str, Array],
    elem: int = TensorProto.FLOAT,
) -> bytes:
    """One operator that reads `x` and constants, as a file's bytes."""
    initial = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)]
    # Files of that time list their constants among the inputs.
    values += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in initial]
    result = [helper.make_tensor_value_info("y", elem, shape)]
    graph = helper.make_graph([node], "old", values, result, initial)
    return helper.make_model(  # type: ignore[no-any-return]
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3
    ).SerializeToString()


def results(content: bytes) -> list[Array]:
    """Of the graph's evaluation and of ONNX's evaluator."""
    graph = read_graph(content, {})
    return [
        evaluate_graph(graph, [X])[graph.outputs[0]],
        evaluate(read_model(content, {}), [X])[0],
    ]


def node(op: str, *others: str, **attributes: Any) -> Any:
    return helper.make_node(op, ["x", *others], ["y"], **attributes)


BY_CHANNEL = CHANNELS[:, None, None]
CASES: dict[str, tuple[Any, int, dict[str, Array], Array]] = {
    "an axis": (node("Add", "c", broadcast=1, axis=1), 6, {"c": CHANNELS}, X + BY_CHANNEL),
    "two axes": (node("Mul", "c", broadcast=1, axis=1), 6, {"c": ROWS}, X * ROWS[:, :, None]),
    "a negative axis": (node("Sub", "c", broadcast=1, axis=-3), 1, {"c": CHANNELS}, X - BY_CHANNEL),
    "the last axes": (
        node("Div", "c", broadcast=1), 6, {"c": floats([1, 2, 4, 8, 16])},
        X / floats([1, 2, 4, 8, 16]),
    ),
    "a number": (node("Pow", "c", broadcast=1), 1, {"c": np.array([2], np.float32)}, X**2),
    "comparison": (node("Less", "c", broadcast=1, axis=1), 1, {"c": CHANNELS}, X < BY_CHANNEL),
    "slopes of channels": (
        node("PRelu", "c"), 6, {"c": CHANNELS}, np.where(X < 0, X * BY_CHANNEL, X),
    ),
    "paddings": (
        node("Pad", paddings=[0, 0, 1, 0, 0, 0, 0, 2], value=0.5), 1, {},
        np.pad(X, [(0, 0), (0, 0), (1, 0), (0, 2)], constant_values=0.5),
    ),
    "scales of an image": (
        node("Upsample", height_scale=2.0, width_scale=3.0, mode="nearest"), 1, {},
        X.repeat(2, axis=2).repeat(3, axis=3),
    ),
    "scales as an attribute": (
        node("Upsample", scales=[1.0, 1.0, 2.0, 1.0], mode="nearest"), 7, {}, X.repeat(2, axis=2),
    ),
    "a shape as an attribute": (node("Reshape", shape=[0, -1]), 1, {}, X.reshape(2, -1)),
    "a type as a text": (node("Cast", to="INT32"), 1, {}, X.astype(np.int32)),
    "copies along an axis": (
        node("Tile", "n", "a"), 1, {"n": floats([2]), "a": floats([1])},
        np.tile(X, (1, 2, 1, 1)),
    ),
    "a default axis": (node("Concat", "x"), 1, {}, np.concatenate([X, X], axis=1)),
    "defaults of that time": (
        node("Selu"), 1, {},
        np.float32(1.0507) * np.where(X > 0, X, np.float32(1.6732) * (np.exp(X) - 1)),
    ),
    "limits as attributes": (node("Clip", min=-0.5, max=0.5), 6, {}, X.clip(-0.5, 0.5)),
    "statistics that are stored": (
        node("BatchNormalization", "g", "b", "m", "v", is_test=1, epsilon=0.0), 6,
        {"g": CHANNELS, "b": CHANNELS, "m": CHANNELS, "v": np.ones(3, np.float32)},
        (X - BY_CHANNEL) * BY_CHANNEL + BY_CHANNEL,
    ),
    "nothing dropped": (node("Dropout", is_test=1, ratio=0.5), 6, {}, X),
}  # fmt: skip


def softmax(axis: int) -> Array:
    """Of all dimensions from the axis on."""
    rows = np.exp(X.reshape(*X.shape[:axis], -1).astype(np.float64))
    return np.asarray((rows / rows.sum(axis=-1, keepdims=True)).reshape(X.shape), np.float32)


def between(x: Array, axis: int) -> Array:
    """Twice as many elements, those in between the mean of both beside them."""
    behind = np.concatenate([x, x.take([-1], axis)], axis)
    middle = (x + behind.take(range(1, x.shape[axis] + 1), axis)) / 2
    shape = [*x.shape[:axis], 2 * x.shape[axis], *x.shape[axis + 1 :]]
    return np.stack([x, middle], axis=axis + 1).reshape(shape)


NEWER: dict[str, tuple[Any, int, dict[str, Array], Array]] = {
    "softmax of what is behind": (node("Softmax", axis=2), 12, {}, softmax(2)),
    "softmax by default": (node("Softmax"), 9, {}, softmax(1)),
    "its logarithm": (node("LogSoftmax", axis=2), 11, {}, np.log(softmax(2))),
    "the greatest": (
        node("Hardmax", axis=2), 11, {}, (X.max(axis=(2, 3), keepdims=True) == X).astype("f4"),
    ),
    "stored statistics": (
        node("BatchNormalization", "g", "b", "m", "v", epsilon=0.0), 11,
        {"g": CHANNELS, "b": CHANNELS, "m": CHANNELS, "v": np.ones(3, np.float32)},
        (X - BY_CHANNEL) * BY_CHANNEL + BY_CHANNEL,
    ),
    "resizing of opset 10": (
        node("Resize", "s", mode="linear"), 10, {"s": floats([1, 1, 2, 1])}, between(X, 2),
    ),
    "upsampling of opset 9": (
        node("Upsample", "s", mode="linear"), 9, {"s": floats([1, 1, 1, 2])}, between(X, 3),
    ),
}  # fmt: skip
CASES |= NEWER


@pytest.mark.parametrize("case", list(CASES))
def test_each_means_what_it_meant(case: str) -> None:
    operator, opset, constants, right = CASES[case]
    elem = helper.np_dtype_to_tensor_dtype(right.dtype)
    for result in results(net(operator, right.shape, opset, constants, elem)):
        assert result.dtype == right.dtype
        np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("operator", "opset", "constants", "text"),
    [
        (node("Add", "c", broadcast=1, axis=1), 6, {"c": ROWS[:, :3]}, "cannot be broadcast"),
        (node("Add", "c", broadcast=1, axis=3), 6, {"c": ROWS}, "lines 2 dimensions up with axis"),
        (node("Cast", to="COMPLEX"), 1, {}, "casts to b'COMPLEX'"),
        (
            node("BatchNormalization", "g", "g", "g", "g", spatial=0), 6,
            {"g": np.ones((3, 4, 5), np.float32)}, "spatial=0",
        ),
    ],
)  # fmt: skip
def test_what_has_no_meaning_today_is_refused(
    operator: Any, opset: int, constants: dict[str, Array], text: str
) -> None:
    with pytest.raises(ModelRefused, match=text):
        read_graph(net(operator, X.shape, opset, constants), {})


def test_a_branch_sees_the_ranks_outside() -> None:
    """An operator inside a branch whose operands are of the graph around it."""
    inner = helper.make_graph(
        [helper.make_node("Add", ["x", "c"], ["z"], broadcast=1, axis=1)],
        "inner", [], [helper.make_tensor_value_info("z", TensorProto.FLOAT, X.shape)],
    )  # fmt: skip
    operator = helper.make_node("If", ["t"], ["y"], then_branch=inner, else_branch=inner)
    content = net(operator, X.shape, 6, {"c": CHANNELS, "t": np.array([True])})
    for result in results(content):
        np.testing.assert_array_equal(result, X + BY_CHANNEL)


def test_models_of_2018_compute_what_is_stored_with_them() -> None:
    """ONNX's cases that PyTorch's first exporter wrote, most of them of opset 6."""
    verdicts = {case.name: onnx_cases.verdict(case) for case in onnx_cases.stored("pytorch-")}
    assert len(verdicts) > 100
    assert {name: text for name, text in verdicts.items() if text != onnx_cases.RIGHT} == {}


# Scales of an axis are of opset 13.
@pytest.mark.parametrize(("opset", "axis"), [(10, None), (13, None), (13, 1), (13, -1)])
def test_integers_for_real_numbers_are_those_of_later_opsets(opset: int, axis: int | None) -> None:
    """ONNX's evaluator has the two operators from opset 19 on only."""
    extent = 1 if axis is None else X.shape[axis]
    scales = floats([0.006, 0.02, 0.01, 0.004, 0.03])[:extent]
    zeros = np.array([-3, 100, 0, 7, -128], np.int8)[:extent]
    shape = () if axis is None else (extent,)
    constants = {"s": scales.reshape(shape), "z": zeros.reshape(shape)}
    named = {} if axis is None else {"axis": axis}
    inputs = ["s", "z"]
    made: list[Array] = []
    for version in (opset, 21):
        nodes = [
            helper.make_node("QuantizeLinear", ["x", *inputs], ["q"], **named),
            helper.make_node("DequantizeLinear", ["q", *inputs], ["y"], **named),
        ]
        graph = helper.make_graph(
            nodes,
            "old",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, X.shape)],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
        made.append(evaluate(read_model(model.SerializeToString(), {}), [X])[0])
    assert (made[0] == made[1]).all() and np.ptp(made[0]) > 0.5


def test_constants_of_an_old_file_need_not_be_inputs() -> None:
    content = net(node("Mul", "c"), X.shape, 7, {"c": floats([2])})
    model = onnx.load_model_from_string(content)
    del model.graph.input[1:]
    for computed in results(model.SerializeToString()):
        np.testing.assert_array_equal(computed, 2 * X)
