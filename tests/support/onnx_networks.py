"""Small ONNX models with random weights: a perceptron and nets like ResNet, MobileNet, BERT."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]
OPSET = 17


@dataclass
class Maker:
    """Nodes and constants of a graph, by name."""

    seed: int = 0
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def constant(self, name: str, value: Any) -> str:
        self.constants[name] = np.asarray(value)
        return name

    def weights(self, name: str, *shape: int) -> str:
        """Scaled by what each output sums, so that activations neither die nor grow."""
        sums = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
        return self.constant(
            name, (self.rng.standard_normal(shape) / np.sqrt(sums)).astype(np.float32)
        )

    def vector(self, name: str, size: int, mean: float = 0.0) -> str:
        return self.constant(name, (mean + 0.1 * self.rng.standard_normal(size)).astype(np.float32))

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """The name of the node's one output."""
        output = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output

    def conv(
        self, source: str, channels: tuple[int, int], kernel: int, stride: int = 1, group: int = 1
    ) -> str:
        """With its batch normalisation."""
        number, (read, written) = len(self.nodes), channels
        weights = self.weights(f"w{number}", written, read // group, kernel, kernel)
        pad = kernel // 2
        convolved = self.add(
            "Conv",
            source,
            weights,
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[pad] * 4,
            group=group,
        )
        scale, shift, mean = (
            self.vector(f"{name}{number}", written, start)
            for name, start in (("s", 1.0), ("b", 0.0), ("m", 0.0))
        )
        variance = self.constant(
            f"v{number}", self.rng.uniform(0.5, 1.5, written).astype(np.float32)
        )
        return self.add("BatchNormalization", convolved, scale, shift, mean, variance)

    def linear(self, source: str, read: int, written: int) -> str:
        number = len(self.nodes)
        product = self.add("MatMul", source, self.weights(f"w{number}", read, written))
        return self.add("Add", product, self.vector(f"b{number}", written))

    def model(
        self,
        inputs: dict[str, tuple[int, ...]],
        output: str,
        shape: tuple[int, ...],
        kind: int = TensorProto.FLOAT,
    ) -> Any:
        given = [
            helper.make_tensor_value_info(name, kind, list(extents))
            for name, extents in inputs.items()
        ]
        self.nodes.append(helper.make_node("Identity", [output], ["y"]))
        graph = helper.make_graph(
            self.nodes,
            "net",
            given,
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, list(shape))],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8
        )


def perceptron(rows: int = 4, sizes: tuple[int, ...] = (32, 64, 10), seed: int = 0) -> Any:
    make, value = Maker(seed=seed), "x"
    for number, (read, written) in enumerate(pairwise(sizes)):
        value = make.linear(value, read, written)
        value = (
            make.add("Relu", value)
            if number < len(sizes) - 2
            else make.add("Softmax", value, axis=-1)
        )
    return make.model({"x": (rows, sizes[0])}, value, (rows, sizes[-1]))


def resnet(
    size: int = 32, width: int = 16, blocks: tuple[int, ...] = (1, 1), classes: int = 10
) -> Any:
    """Basic blocks of two 3x3 convolutions, as in He et al., 2016."""
    make = Maker(seed=1)
    value = make.add("Relu", make.conv("x", (3, width), 7, stride=2))
    value = make.add("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            wide, stride = width << stage, 2 if stage and not block else 1
            inner = make.add("Relu", make.conv(value, (channels, wide), 3, stride=stride))
            inner = make.conv(inner, (wide, wide), 3)
            if stride != 1 or wide != channels:
                value = make.conv(value, (channels, wide), 1, stride=stride)
            value, channels = make.add("Relu", make.add("Add", inner, value)), wide
    value = make.add("Flatten", make.add("GlobalAveragePool", value))
    weights = make.constant(
        "classes",
        (make.rng.standard_normal((classes, channels)) / np.sqrt(channels)).astype(np.float32),
    )
    value = make.add("Gemm", value, weights, make.vector("bias", classes), transB=1)
    return make.model({"x": (1, 3, size, size)}, value, (1, classes))


def mobilenet(
    size: int = 32,
    width: int = 16,
    blocks: tuple[tuple[int, int], ...] = ((16, 1), (24, 2), (24, 1)),
    classes: int = 10,
) -> Any:
    """Inverted residuals with depthwise convolutions, as in Sandler et al., 2018.

    Blocks are (channels, stride).
    """
    make = Maker(seed=2)
    low, high = make.constant("low", np.float32(0)), make.constant("high", np.float32(6))
    value = make.add("Clip", make.conv("x", (3, width), 3, stride=2), low, high)
    channels = width
    for written, stride in blocks:
        wide = 6 * channels
        inner = make.add("Clip", make.conv(value, (channels, wide), 1), low, high)
        inner = make.add(
            "Clip", make.conv(inner, (wide, wide), 3, stride=stride, group=wide), low, high
        )
        inner = make.conv(inner, (wide, written), 1)
        value = make.add("Add", inner, value) if stride == 1 and written == channels else inner
        channels = written
    value = make.add("Flatten", make.add("GlobalAveragePool", value))
    value = make.linear(value, channels, classes)
    return make.model({"x": (1, 3, size, size)}, value, (1, classes))


def bert(
    words: int = 16, width: int = 32, heads: int = 4, layers: int = 1, vocabulary: int = 50
) -> Any:
    """Encoder layers as in Devlin et al., 2019, with gelu written out as exporters write it."""
    make, each = Maker(seed=3), width // heads
    value = make.add("Gather", make.weights("words", vocabulary, width), "ids")
    value = make.add("Add", value, make.weights("places", 1, words, width))
    apart = make.constant("apart", np.array([1, words, heads, each], np.int64))
    whole = make.constant("whole", np.array([1, words, width], np.int64))
    root, half, unit = (
        make.constant(f"f{place}", np.float32(number))
        for place, number in enumerate((2**0.5, 0.5, 1.0))
    )
    scale = make.constant("scale", np.float32(each**0.5))
    for layer in range(layers):
        q, k, v = (
            make.add(
                "Transpose",
                make.add("Reshape", make.linear(value, width, width), apart),
                perm=order,
            )
            for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        seen = make.add("Softmax", make.add("Div", make.add("MatMul", q, k), scale), axis=-1)
        mixed = make.add(
            "Reshape", make.add("Transpose", make.add("MatMul", seen, v), perm=[0, 2, 1, 3]), whole
        )
        value = _normed(
            make, make.add("Add", make.linear(mixed, width, width), value), width, f"{layer}a"
        )
        inner = make.linear(value, width, 4 * width)
        smooth = make.add("Add", make.add("Erf", make.add("Div", inner, root)), unit)
        inner = make.add("Mul", make.add("Mul", inner, smooth), half)
        value = _normed(
            make, make.add("Add", make.linear(inner, 4 * width, width), value), width, f"{layer}b"
        )
    return make.model({"ids": (1, words)}, value, (1, words, width), TensorProto.INT64)


def tagger(
    words: int = 6, batch: int = 2, width: int = 5, hidden: int = 10, classes: int = 7
) -> Any:
    """A bidirectional LSTM, a GRU and a class for each word."""
    make = Maker(seed=4)

    def layer(op: str, gates: int, source: str, read: int, size: int, directions: int) -> str:
        rows, number = gates * size, len(make.nodes)
        shapes = {"w": (directions, rows, read), "r": (directions, rows, size)}
        names = [
            make.constant(
                f"{name}{number}", (make.rng.standard_normal(shape) * 0.3).astype(np.float32)
            )
            for name, shape in shapes.items()
        ]
        bias = make.constant(
            f"b{number}", make.rng.standard_normal((directions, 2 * rows)).astype(np.float32)
        )
        both = {"direction": "bidirectional"} if directions == 2 else {}
        return make.add(op, source, *names, bias, hidden_size=size, **both)

    value = layer("LSTM", 4, "x", width, hidden, 2)
    value = make.add("Transpose", value, perm=[0, 2, 1, 3])
    joined = make.constant("joined", np.array([words, batch, 2 * hidden]))
    value = layer("GRU", 3, make.add("Reshape", value, joined), 2 * hidden, 16, 1)
    flat = make.constant("flat", np.array([words, batch, 16]))
    value = make.linear(make.add("Reshape", value, flat), 16, classes)
    return make.model({"x": (words, batch, width)}, value, (words, batch, classes))


def _normed(make: Maker, value: str, width: int, name: str) -> str:
    scale, shift = make.vector(f"scale{name}", width, 1.0), make.vector(f"shift{name}", width)
    return make.add("LayerNormalization", value, scale, shift, axis=-1, epsilon=1e-5)


def feeds(model: Any, seed: int = 7) -> dict[str, Array]:
    """Inputs for a model: normal values, or for indices numbers below 50."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, Array] = {}
    for value in model.graph.input:
        shape = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        whole = value.type.tensor_type.elem_type == TensorProto.INT64
        arrays[value.name] = (
            rng.integers(0, 50, shape) if whole else rng.standard_normal(shape).astype(np.float32)
        )
    return arrays


def serialized(model: Any) -> bytes:
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content
