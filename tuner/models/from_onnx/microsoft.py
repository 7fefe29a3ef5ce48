"""Operators of the domain `com.microsoft`, as ONNX Runtime's optimiser and quantiser write
them (https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tuner.models.from_onnx import (
    microsoft_attention,
    microsoft_quantized,
    products,
    reductions,
    shapes,
)
from tuner.models.from_onnx.microsoft_quantized import with_channels_last
from tuner.models.from_onnx.node import Convert, Node, Results
from tuner.models.operators import contraction
from tuner.models.operators import elementwise as maps
from tuner.models.operators import normalization as norms
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.movement import along, transpose, unsqueeze
from tuner.models.operators.scalars import Elem, clamp, unary
from tuner.models.operators.values import Value

# Of an element and the parameters of the operator, in the order of its attribute.
_ACTIVATIONS: Mapping[str, Callable[..., Elem]] = {
    "Clip": lambda e, low=-float("inf"), high=float("inf"): clamp(e, low, high),
    "Elu": maps.elu,
    "Gelu": maps.gelu,
    "HardSigmoid": maps.hard_sigmoid,
    "HardSwish": maps.hard_swish,
    "LeakyRelu": lambda e, alpha=0.01: maps.leaky_relu(e, alpha),
    "Relu": maps.relu,
    "Sigmoid": maps.sigmoid,
    "Softplus": maps.softplus,
    "Softsign": maps.softsign,
    "Tanh": lambda e: unary("tanh", e),
}


def _activated(node: Node, x: Value, parameters: Sequence[float]) -> Value:
    name = str(node.attribute("activation", ""))
    if not name:
        return x
    if name not in _ACTIVATIONS:
        raise node.refusal(f"has the activation {name!r}")
    return elementwise(name.lower(), lambda e: _ACTIVATIONS[name](e, *parameters), x)


def _parameters(node: Node) -> list[float]:
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    given = [node.attribute(name, None) for name in names]
    return [float(value) for value in given if value is not None]


def conv(node: Node) -> Value:
    """A convolution, a summand, an activation."""
    result = products.conv(node)
    if (added := node.optional(3)) is not None:
        result = elementwise("add", lambda e, z: e + z, result, added)
    return _activated(node, result, list(node.attribute("activation_params", None) or []))


def conv_transpose(node: Node) -> Value:
    """With its padding as an input."""
    pads = node.ints(2)
    attributes = {**node.attributes, **({} if pads is None else {"pads": pads})}
    inputs = (node[0], node[1], node.optional(3))
    return products.conv_transpose(replace(node, inputs=inputs, attributes=attributes))


def matmul(node: Node) -> Value:
    a, b = (
        _oriented(
            node[place],
            bool(node.attribute(f"transBatch{name}", 0)),
            bool(node.attribute(f"trans{name}", 0)),
        )
        for place, name in enumerate("AB")
    )
    product = contraction.matmul(a, b)
    alpha = float(node.attribute("alpha", 1.0))
    if alpha != 1:
        product = elementwise("alpha", lambda e: e * alpha, product)
    return _activated(node, product, _parameters(node))


def _oriented(x: Value, batch: bool, matrix: bool) -> Value:
    """With the first dimension behind the others but the last; then with the last two
    exchanged."""
    if x.rank < 2:
        return x
    order = list(range(x.rank))
    if batch:
        order = [*order[1:-1], 0, order[-1]]
    if matrix:
        order[-2:] = reversed(order[-2:])
    return transpose(x, order)


def gemm(node: Node) -> Value:
    return _activated(node, products.gemm(node), _parameters(node))


def biased_gelu(function: Callable[[Elem], Elem]) -> Convert:
    def convert(node: Node) -> Value:
        bias = node.optional(1)
        if bias is None:
            return elementwise("gelu", function, node[0])
        return elementwise("gelu", lambda e, b: function(e + b), node[0], bias)

    return convert


def quick_gelu(node: Node) -> Value:
    alpha = float(node.attribute("alpha", 1.702))
    return elementwise("quick_gelu", lambda e: e * maps.sigmoid(e * alpha), node[0])


def bias_split_gelu(node: Node) -> Value:
    """The first half of the last dimension times the second's gelu."""
    summed = elementwise("bias", lambda e, b: e + b, node[0], node[1])
    last = summed.rank - 1
    half = summed.shape[last] // 2
    left, right = (along(summed, last, begin, half) for begin in (0, half))
    return elementwise("gated", lambda e, g: e * maps.gelu(g), left, right)


def bias_add(node: Node) -> Value:
    return elementwise("bias", lambda e, b, s: e + b + s, node[0], node[1], node[2])


def bias_softmax(node: Node) -> Value:
    x = node[0]
    summed = elementwise("bias", lambda e, b: e + b, x, node[1])
    return norms.softmax(summed, range(node.attribute("axis", 1) % x.rank, x.rank))


def simplified_layer_norm(node: Node) -> Results:
    return [reductions.rms_norm(node)]


def skip_layer_norm(*, centred: bool) -> Convert:
    """The normalised sum of two tensors and a bias, and the sum as the fourth result."""

    def convert(node: Node) -> Results:
        bias = node.optional(4 if centred else 3)
        values = [node[0], node[1], *([] if bias is None else [bias])]

        def added(e: Elem, *others: Elem) -> Elem:
            for other in others:
                e = e + other
            return e

        total = elementwise("skip", added, *values)
        axes, epsilon = [total.rank - 1], float(node.attribute("epsilon", 1e-12))
        if centred:
            result = norms.layer_norm(total, axes, node[2], node.optional(3), epsilon)
        else:
            result = norms.rms_norm(total, axes, node[2], epsilon)
        return [result, None, None, total]

    return convert


def group_norm(node: Node) -> Results:
    """Of a tensor, or of its sum with others, which is the second result."""
    x, gamma, beta = node[0], node[1], node[2]
    skip, bias = node.optional(3), node.optional(4)
    rank = x.rank
    is_last = bool(node.attribute("channels_last", 1))
    if is_last:
        x = transpose(x, [0, rank - 1, *range(1, rank - 1)])
    if skip is not None:
        wide = skip if skip.rank == rank else unsqueeze(skip, [1, 2])
        if is_last:
            wide = transpose(wide, [0, rank - 1, *range(1, rank - 1)])
        x = elementwise("skip", lambda e, s: e + s, x, wide)
    if bias is not None:
        x = elementwise("bias", lambda e, b: e + b, x, norms.channel(bias, rank))
    epsilon = float(node.attribute("epsilon", 1e-5))
    result = norms.group_norm(x, node.attribute("groups", 1), gamma, beta, epsilon)
    if node.attribute("activation", 0):
        result = elementwise("silu", maps.silu, result)
    results = [result, x][: 2 if len(node.outputs) > 1 else 1]
    if is_last:
        results = [transpose(value, [0, *range(2, rank), 1]) for value in results]
    return results


def expand_dims(node: Node) -> Value:
    return unsqueeze(node[0], [int(node.scalar(1, 0))])


TABLE: Mapping[str, Convert] = {
    **microsoft_attention.TABLE,
    **microsoft_quantized.TABLE,
    "BiasAdd": bias_add,
    "BiasGelu": biased_gelu(maps.gelu),
    "BiasSoftmax": bias_softmax,
    "BiasSplitGelu": bias_split_gelu,
    "ConvTransposeWithDynamicPads": conv_transpose,
    "ExpandDims": expand_dims,
    "FastGelu": biased_gelu(maps.gelu_tanh),
    "FusedConv": conv,
    "FusedGemm": gemm,
    "FusedMatMul": matmul,
    "FusedMatMulActivation": matmul,
    "GatherND": shapes.gather_nd,
    "Gelu": biased_gelu(maps.gelu),
    "GroupNorm": group_norm,
    "LayerNormalization": reductions.layer_norm,
    "NhwcConv": with_channels_last(conv),
    "NhwcFusedConv": with_channels_last(conv, images=(0, 3)),
    "NhwcMaxPool": with_channels_last(products.max_pool),
    "Pad": shapes.pad,
    "QuickGelu": quick_gelu,
    "Range": shapes.of_known_inputs,
    "SimplifiedLayerNormalization": simplified_layer_norm,
    "SkipGroupNorm": group_norm,
    "SkipLayerNormalization": skip_layer_norm(centred=True),
    "SkipSimplifiedLayerNormalization": skip_layer_norm(centred=False),
    "TransposeMatMul": matmul,
    "Trilu": shapes.triangle,
}
