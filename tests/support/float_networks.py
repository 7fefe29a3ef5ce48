"""Small float networks as ONNX files, with weights drawn or trained in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]
Shape = Sequence[int | str]


def network(
    nodes: Sequence[Any],
    constants: Mapping[str, Array],
    x: Shape,
    y: Shape,
    opset: int = 17,
) -> bytes:
    """The bytes of a network from `x` to `y`."""
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    content: bytes = model.SerializeToString()
    return content


def node(op: str, inputs: str, output: str, **attributes: Any) -> Any:
    """An operator that goes by its result's name; names of inputs stand behind each other."""
    return helper.make_node(op, inputs.split(), [output], name=output, **attributes)


def images(rng: np.random.Generator, batch: int | str = "n") -> bytes:
    """A plain, a depthwise and a grouped convolution, with a residual sum, poolings, a
    concatenation and a product: 12 channels of 9×9 at most, 5 results."""

    def weights(*shape: int) -> Array:
        scale = 1 / np.sqrt(np.prod(shape[1:]))
        return np.asarray(rng.standard_normal(shape) * scale, np.float32)

    nodes = [
        node("Conv", "x w1 b1", "c1", pads=[1, 1, 1, 1]),
        node("Relu", "c1", "r1"),
        node("Conv", "r1 w2 b2", "c2", pads=[1, 1, 1, 1], group=8),
        node("Clip", "c2 low high", "r2"),
        node("Conv", "r2 w3", "c3"),
        node("Add", "c3 r1", "sum"),
        node("MaxPool", "sum", "m", kernel_shape=[3, 3], strides=[2, 2]),
        node("Conv", "m w4 b4", "c4", group=2, strides=[2, 2], pads=[0, 1, 1, 0]),
        node("AveragePool", "m", "a", kernel_shape=[2, 2], strides=[2, 2]),
        node("Concat", "c4 a", "joined", axis=1),
        node("GlobalAveragePool", "joined", "g"),
        node("Flatten", "g", "flat"),
        node("Gemm", "flat w5 b5", "y", transB=1),
    ]
    constants = {
        "w1": weights(8, 3, 3, 3), "b1": weights(8), "w2": weights(8, 1, 3, 3), "b2": weights(8),
        "w3": weights(8, 8, 1, 1), "w4": weights(4, 4, 3, 3), "b4": weights(4),
        "w5": weights(5, 12), "b5": weights(5), "low": np.float32(0), "high": np.float32(6),
    }  # fmt: skip
    return network(
        nodes, {name: np.asarray(a) for name, a in constants.items()}, [batch, 3, 9, 9], [batch, 5]
    )


def trained_classifier(
    x: Array, labels: Array, hidden: int, epochs: int, rng: np.random.Generator
) -> bytes:
    """A perceptron with one hidden layer, trained by full-batch gradient descent with
    momentum on the rows of x."""
    classes = int(labels.max()) + 1
    target = np.eye(classes)[labels]
    parameters = [
        rng.standard_normal((x.shape[1], hidden)) / np.sqrt(x.shape[1]), np.zeros(hidden),
        rng.standard_normal((hidden, classes)) / np.sqrt(hidden), np.zeros(classes),
    ]  # fmt: skip
    speeds = [np.zeros_like(p) for p in parameters]
    for _ in range(epochs):
        w1, b1, w2, b2 = parameters
        h = np.maximum(x @ w1 + b1, 0)
        scores = h @ w2 + b2
        shares = np.exp(scores - scores.max(1, keepdims=True))
        error = (shares / shares.sum(1, keepdims=True) - target) / len(x)
        back = (error @ w2.T) * (h > 0)
        slopes = [x.T @ back, back.sum(0), h.T @ error, error.sum(0)]
        speeds = [0.9 * v - 0.3 * s for v, s in zip(speeds, slopes, strict=True)]
        parameters = [p + v for p, v in zip(parameters, speeds, strict=True)]
    nodes = [
        node("Gemm", "x w1 b1", "h"),
        node("Relu", "h", "r"),
        node("Gemm", "r w2 b2", "y"),
    ]
    names = ("w1", "b1", "w2", "b2")
    constants = {n: p.astype(np.float32) for n, p in zip(names, parameters, strict=True)}
    return network(nodes, constants, ["n", x.shape[1]], ["n", classes])
