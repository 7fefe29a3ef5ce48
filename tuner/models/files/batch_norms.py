"""Folds batch normalisations of an ONNX model into the convolutions before them.

The folded weights are computed in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

_EPSILON = 1e-5  # ONNX's default


def fold_batch_norms(model: Any) -> int:
    """Rewrites the model in place and returns how many normalisations were folded.

    A convolution whose result something else reads too stays as it is, and so does one
    with weights that are no float32 constants.
    """
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    uses: dict[str, int] = {}
    for name in (
        *(name for node in graph.node for name in node.input),
        *(value.name for value in graph.output),
    ):
        uses[name] = uses.get(name, 0) + 1
    makers = {node.output[0]: node for node in graph.node if node.output}
    folded = 0
    for node in list(graph.node):
        if (
            node.op_type != "BatchNormalization"
            or len([name for name in node.output if name]) != 1
            or _trains(node)
        ):
            continue
        before = makers.get(node.input[0])
        if before is None or before.op_type != "Conv" or uses[before.output[0]] != 1:
            continue
        if any(name not in constants for name in (*node.input[1:], *before.input[1:])) or not (
            _floats(constants, node, before) and _fit(constants, node, before)
        ):
            continue
        _fold(graph, constants, before, node, folded)
        folded += 1
    return folded


def _trains(node: Any) -> bool:
    """Whether the normalisation computes mean and variance from the batch itself."""
    return any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute)


def _floats(constants: dict[str, Any], *nodes: Any) -> bool:
    kinds = {constants[name].data_type for node in nodes for name in node.input[1:]}
    return kinds == {onnx.TensorProto.FLOAT}


def _fit(constants: dict[str, Any], norm: Any, conv: Any) -> bool:
    """Whether all of them have a number for each channel of the convolution's results."""
    channels = list(constants[conv.input[1]].dims[:1])
    return all(
        list(constants[name].dims) == channels for name in (*norm.input[1:5], *conv.input[2:])
    )


def _fold(graph: Any, constants: dict[str, Any], conv: Any, norm: Any, number: int) -> None:
    """Scales weights and bias of `conv` and removes `norm`; `number` names the constants.

    With s = gamma / sqrt(variance + epsilon) the result s (W x + b - mean) + beta equals
    (s W) x + s (b - mean) + beta.
    """
    gamma, beta, mean, variance = (_array(constants, name) for name in norm.input[1:5])
    epsilon = next(
        (attribute.f for attribute in norm.attribute if attribute.name == "epsilon"), _EPSILON
    )
    weights = _array(constants, conv.input[1])
    bias = _array(constants, conv.input[2]) if len(conv.input) > 2 else np.zeros(weights.shape[0])
    scale = gamma / np.sqrt(variance + epsilon)
    scaled = weights * scale.reshape((-1, *(1,) * (weights.ndim - 1)))
    folded = {
        f"tuner_folded_w{number}": scaled,
        f"tuner_folded_b{number}": (bias - mean) * scale + beta,
    }
    for name, array in folded.items():
        tensor = onnx.numpy_helper.from_array(array.astype(np.float32), name)
        graph.initializer.append(tensor)
        constants[name] = tensor
    source, output = conv.input[0], norm.output[0]
    del conv.input[:]
    conv.input.extend([source, *folded])
    conv.output[0] = output
    graph.node.remove(norm)


def _array(constants: dict[str, Any], name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.asarray(onnx.numpy_helper.to_array(constants[name]), np.float64)
