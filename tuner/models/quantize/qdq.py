"""Writes a network with layers of 8-bit integers as an ONNX model of float operators
between `QuantizeLinear` and `DequantizeLinear`, which runtimes read as integer operators.

Activations are uint8 with one scale and zero point a tensor. Weights are int8 of -127 to
127 with a scale for each result's channel, biases int32 in the scale of the sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import onnx

from tuner.models.arrays import Array
from tuner.models.quantize.layers import Layer, Plan
from tuner.models.quantize.ranges import Range

_GREATEST_WEIGHT = 127
_GREATEST_BIAS = float(1 << 30)  # in steps; more could leave int32 with the sums
_PREFIX = "quantized/"


def with_integers(
    model: Any,
    plan: Plan,
    layers: Sequence[Layer],
    ranges: Mapping[str, Range],
    constants: Mapping[str, Any],
) -> Any:
    """A copy of the `ModelProto` of opset 13 or later, in which these layers of the plan
    are computed with integers. `ranges` has those of the plan's tensors."""
    written = onnx.ModelProto()
    written.CopyFrom(model)
    writer = _Writer(written.graph, constants)
    tensors = plan.tensors(layers)
    scales = {name: ranges[source].scale_and_zero() for name, source in tensors.items()}
    for layer in layers:
        writer.weights(layer, scales)
    writer.activations(scales)
    _drop_unused(written.graph)
    return written


@dataclass
class _Writer:
    graph: Any
    constants: Mapping[str, Any]
    # What is put before the operator that reads it first: dequantised constants.
    _first: list[Any] = field(default_factory=list)

    def weights(self, layer: Layer, scales: Mapping[str, tuple[np.float32, np.uint8]]) -> None:
        if not layer.weight:
            return
        weight = np.asarray(self.constants[layer.weight])
        bias = np.asarray(self.constants[layer.bias]) if layer.bias else None
        step = float(scales[layer.activations[0]][0])
        whole = tuple(axis for axis in range(weight.ndim) if axis != layer.axis)
        scale = np.abs(weight).max(whole).astype(np.float64) / _GREATEST_WEIGHT
        bias = None if bias is None or bias.size != scale.size else bias.reshape(-1)
        if bias is not None:  # a channel of small weights has no room for its bias
            scale = np.maximum(scale, np.abs(bias) / (step * _GREATEST_BIAS))
        tiny = np.finfo(np.float32).tiny
        scale = np.where(scale < tiny, 1, scale).astype(np.float32)
        shape = [1] * weight.ndim
        shape[layer.axis] = -1
        integers = np.rint(weight / scale.reshape(shape))
        integers = np.clip(integers, -_GREATEST_WEIGHT, _GREATEST_WEIGHT).astype(np.int8)
        name = f"{_PREFIX}{layer.place}"
        node = self.graph.node[layer.place]
        node.input[1] = self.dequantized(f"{name}/weight", integers, scale, layer.axis)
        if bias is not None:
            sums = np.float32(step) * scale
            steps = np.rint(bias / sums.astype(np.float64)).astype(np.int32)
            node.input[2] = self.dequantized(f"{name}/bias", steps, sums, 0)

    def dequantized(self, name: str, integers: Array, scale: Array, axis: int) -> str:
        """The result of an operator that makes real numbers of constant integers."""
        parameters = {"": integers, "/scale": scale, "/zero": np.zeros(scale.shape, integers.dtype)}
        for suffix, array in parameters.items():
            self.constant(name + suffix, array)
        inputs = [name + suffix for suffix in parameters]
        self._first.append(_node("DequantizeLinear", inputs, f"{name}/real", axis=axis))
        return f"{name}/real"

    def constant(self, name: str, array: Array) -> None:
        self.graph.initializer.append(onnx.numpy_helper.from_array(array, name))

    def activations(self, scales: Mapping[str, tuple[np.float32, np.uint8]]) -> None:
        """Puts the two operators behind every tensor; all that reads it reads their result."""
        nodes = list(self.graph.node)
        del self.graph.node[:]
        self.graph.node.extend(self._first)
        for value in self.graph.input:
            if value.name in scales:
                self.graph.node.extend(self.pair(value.name, scales[value.name]))
        for node in nodes:
            for place, name in enumerate(node.input):
                if name in scales:
                    node.input[place] = f"{_PREFIX}{name}/real"
            self.graph.node.append(node)
            for name in node.output:
                if name in scales:
                    self.graph.node.extend(self.pair(name, scales[name]))

    def pair(self, name: str, parameters: tuple[np.float32, np.uint8]) -> Iterable[Any]:
        prefix = f"{_PREFIX}{name}"
        self.constant(f"{prefix}/scale", np.asarray(parameters[0]))
        self.constant(f"{prefix}/zero", np.asarray(parameters[1]))
        integers = [f"{prefix}/integers", f"{prefix}/scale", f"{prefix}/zero"]
        yield _node("QuantizeLinear", [name, *integers[1:]], integers[0])
        yield _node("DequantizeLinear", integers, f"{prefix}/real")


def _node(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> Any:
    return onnx.helper.make_node(op, inputs, [output], name=output, **attributes)


def _drop_unused(graph: Any) -> None:
    """Removes operators that nothing reads, and constants."""
    needed = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed & {*node.output}:
            needed |= {*node.input, *_read_inside(node)}
            kept.append(node)
    del graph.node[:]
    graph.node.extend(reversed(kept))
    constants = [tensor for tensor in graph.initializer if tensor.name in needed]
    del graph.initializer[:]
    graph.initializer.extend(constants)


def _read_inside(node: Any) -> Iterable[str]:
    """The names that graphs inside of an operator read."""
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (value.name for value in graph.output)
            for inner in graph.node:
                yield from inner.input
                yield from _read_inside(inner)


def constant_bytes(model: Any) -> int:
    """Bytes of all constants of a model."""
    return sum(
        prod(tensor.dims) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        for tensor in model.graph.initializer
    )
