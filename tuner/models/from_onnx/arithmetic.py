"""Elementwise operators of ONNX."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from tuner.models.from_onnx.node import (
    Convert,
    ElementType,
    Node,
    Results,
    element_type,
    rounding_of,
)
from tuner.models.operators import elementwise as ops
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.formats import INTEGER_LIMITS
from tuner.models.operators.movement import broadcast_shape, reshape
from tuner.models.operators.scalars import Elem, bitwise, maximum, minimum, unary, where
from tuner.models.operators.values import Clipped, Value, Written
from tuner.models.operators.zeros import is_never_negative_zero
from tuner.workload.dtypes import FLOATS
from tuner.workload.expression import BinaryOp, UnaryOp


def each(function: Callable[..., Elem]) -> Convert:
    """An operator that applies a function to the elements of all its inputs."""

    def convert(node: Node) -> Value:
        values = [node[place] for place in range(len(node.inputs))]
        return elementwise(node.op.lower(), function, *values)

    return convert


def neutral(function: Callable[..., Elem], number: int, *, either: bool = False) -> Convert:
    """The same of two inputs, where a second one of this number alone leaves the first as it
    is, and `either` the first one the second."""

    def convert(node: Node) -> Results:
        for x, other in _pairs(node, either=either):
            same = other.uniform
            if same != number or math.copysign(1, same) < 0:  # -0 - -0 is 0
                continue
            if broadcast_shape(x.shape, other.shape) == x.shape:
                return x
        return each(function)(node)

    return convert


def _pairs(node: Node, *, either: bool) -> list[tuple[Value, Value]]:
    return [(node[0], node[1]), (node[1], node[0])] if either else [(node[0], node[1])]


def add(node: Node) -> Results:
    """0 makes 0 of -0, and leaves everything else as it is: converters copy a tensor so."""
    if node[0].dtype not in FLOATS:
        return neutral(lambda a, b: a + b, 0, either=True)(node)
    result = elementwise("add", lambda a, b: a + b, node[0], node[1])
    for x, other in _pairs(node, either=True):
        made = x.made
        if other.uniform != 0 or result.shape != x.shape or not isinstance(made, Written):
            continue
        if is_never_negative_zero(made.content):
            return replace(result, made=replace(made, zero_added=True))
    return result


def tested(function: Callable[..., Elem]) -> Convert:
    """The same with a bool as its result."""

    def convert(node: Node) -> Value:
        values = [node[place] for place in range(len(node.inputs))]
        return elementwise(node.op.lower(), function, *values, dtype="bool")

    return convert


def named(op: UnaryOp) -> Convert:
    return each(partial(unary, op))


def folded(function: Callable[[Elem, Elem], Elem]) -> Convert:
    """An operator of any number of inputs, from the left to the right."""

    def all_of(*elements: Elem) -> Elem:
        result = elements[0]
        for element in elements[1:]:
            result = function(result, element)
        return result

    return each(all_of)


def parametrized(function: Callable[..., Elem], **defaults: float) -> Convert:
    """A function of the element and of attributes, with their defaults."""

    def convert(node: Node) -> Value:
        given = {name: node.attribute(name, value) for name, value in defaults.items()}
        return elementwise(node.op.lower(), lambda e: function(e, **given), node[0])

    return convert


def clip(node: Node) -> Value:
    low, high = node.attribute("min", None), node.attribute("max", None)
    x, bounds = node[0], []
    for place, number, function in ((1, low, maximum), (2, high, minimum)):
        value = node.optional(place)
        if value is None and number is not None:
            value = node.builder.constant(number, x.dtype)
        if value is not None:
            bounds.append((value, function))

    def body(e: Elem, *limits: Elem) -> Elem:
        for limit, (_, function) in zip(limits, bounds, strict=True):
            e = function(e, limit)
        return e

    clipped = elementwise("clip", body, x, *(value for value, _ in bounds))
    ends = {maximum: -math.inf, minimum: math.inf}
    for value, function in bounds:
        if value.array is None or value.array.size != 1:
            return clipped
        ends[function] = float(value.array.reshape(-1)[0])
    return replace(clipped, made=Clipped(value=x, low=ends[maximum], high=ends[minimum]))


def relu(node: Node) -> Value:
    clipped = elementwise("relu", ops.relu, node[0])
    return replace(clipped, made=Clipped(value=node[0], low=0.0, high=math.inf))


def cast(node: Node) -> Value:
    return _converted(node, element_type(node.attribute("to", 1), "a cast's result"))


def cast_like(node: Node) -> Value:
    return _converted(node, ElementType(dtype=node[1].dtype, format=node[1].format))


def _converted(node: Node, to: ElementType) -> Value:
    if to.format is None:
        return ops.cast(node[0], to.dtype)
    return ops.encode(node[0], to.format, rounding_of(node))


def bit_cast(node: Node) -> Value:
    to = element_type(node.attribute("to", 1), "the result of a bit cast")
    if {kept.name for kept in (node[0].format, to.format) if kept} & INTEGER_LIMITS.keys():
        raise node.refusal("takes the bits of integers of less than a byte")
    return ops.bitcast(node[0], to.dtype, to.format)


def power(node: Node) -> Value:
    base, exponent = node[0], node[1]
    wide = base if base.dtype in FLOATS else ops.cast(base, "float64")
    raised = elementwise("pow", ops.power, wide, ops.cast(exponent, wide.dtype))
    return ops.cast(raised, base.dtype)


def modulo(node: Node) -> Value:
    """Python's remainder, or with `fmod` C's, which has the dividend's sign."""
    if not node.attribute("fmod", 0):
        return elementwise("mod", ops.remainder, node[0], node[1])
    return elementwise("fmod", ops.truncated_remainder, node[0], node[1])


def prelu(node: Node) -> Value:
    x, slope = node[0], node[1]
    # Files of newer opsets than 6 still have a slope a channel, which broadcasting forbids.
    if slope.rank == 1 and x.rank > 2 and x.shape[1] == slope.elements not in (1, x.shape[-1]):
        slope = reshape(slope, [slope.elements, *(1,) * (x.rank - 2)])
    return elementwise("prelu", lambda e, s: where(e < 0, e * s, e), x, slope)


def gelu(node: Node) -> Value:
    tanh = node.attribute("approximate", "none") == "tanh"
    return elementwise("gelu", ops.gelu_tanh if tanh else ops.gelu, node[0])


def swish(node: Node) -> Value:
    alpha = node.attribute("alpha", 1.0)
    return elementwise("swish", lambda e: e * ops.sigmoid(e * alpha), node[0])


def select(node: Node) -> Value:
    condition, then, other = node[0], node[1], node[2]
    return elementwise("where", where, condition, then, other, dtype=then.dtype)


def is_inf(node: Node) -> Value:
    negative = bool(node.attribute("detect_negative", 1))
    positive = bool(node.attribute("detect_positive", 1))
    return elementwise(
        "isinf",
        lambda e: ops.is_inf(e, negative=negative, positive=positive),
        node[0],
        dtype="bool",
    )


def mean(node: Node) -> Value:
    count = len(node.inputs)

    def body(*elements: Elem) -> Elem:
        total = elements[0]
        for element in elements[1:]:
            total = total + element
        return total * (1 / count)

    return elementwise("mean", body, *(node[place] for place in range(count)))


def identity(node: Node) -> Value:
    return node[0]


def dropout(node: Node) -> list[Value]:
    """Of inference: everything is kept."""
    training = node.known(2)
    if training is not None and bool(training.reshape(-1)[0]) and node.scalar(1, 0.5):
        raise node.refusal("trains; export the model for inference")
    kept = node.builder.constant(np.ones(node[0].shape, bool)) if len(node.outputs) > 1 else None
    return [node[0]] if kept is None else [node[0], kept]


def _selu(e: Elem, alpha: float, gamma: float) -> Elem:
    return ops.elu(e, alpha, gamma)


def bits(op: BinaryOp) -> Convert:
    return each(partial(bitwise, op))


def shifted(node: Node) -> Value:
    op: BinaryOp = "shl" if node.attribute("direction", "LEFT") == "LEFT" else "shr"
    return bits(op)(node)  # type: ignore[return-value]


TABLE: Mapping[str, Convert] = {
    "Abs": named("abs"),
    "Acos": named("acos"),
    "Acosh": named("acosh"),
    "Add": add,
    "And": tested(lambda a, b: a & b),
    "Asin": named("asin"),
    "Asinh": named("asinh"),
    "Atan": named("atan"),
    "Atanh": named("atanh"),
    "BitShift": shifted,
    "BitwiseAnd": bits("bitand"),
    "BitCast": bit_cast,
    "BitwiseNot": each(ops.invert),
    "BitwiseOr": bits("bitor"),
    "BitwiseXor": bits("xor"),
    "Cast": cast,
    "CastLike": cast_like,
    "Ceil": named("ceil"),
    "Celu": parametrized(ops.celu, alpha=1.0),
    "Clip": clip,
    "Cos": named("cos"),
    "Cosh": named("cosh"),
    "Div": neutral(ops.divide, 1),
    "Dropout": dropout,
    "Elu": parametrized(ops.elu, alpha=1.0),
    "Equal": tested(lambda a, b: a.equals(b)),
    "Erf": named("erf"),
    "Exp": named("exp"),
    "Floor": named("floor"),
    "Gelu": gelu,
    "Greater": tested(lambda a, b: a > b),
    "GreaterOrEqual": tested(lambda a, b: a >= b),
    "HardSigmoid": parametrized(ops.hard_sigmoid, alpha=0.2, beta=0.5),
    "HardSwish": each(ops.hard_swish),
    "Identity": identity,
    "IsInf": is_inf,
    "IsNaN": tested(ops.is_nan),
    "LeakyRelu": parametrized(ops.leaky_relu, alpha=0.01),
    "Less": tested(lambda a, b: a < b),
    "LessOrEqual": tested(lambda a, b: a <= b),
    "Log": named("log"),
    "Max": folded(maximum),
    "Mean": mean,
    "Min": folded(minimum),
    "Mish": each(ops.mish),
    "Mod": modulo,
    "Mul": neutral(lambda a, b: a * b, 1, either=True),
    "Neg": each(lambda a: -a),
    "Not": tested(lambda a: ~a),
    "Or": tested(lambda a, b: a | b),
    "PRelu": prelu,
    "Pow": power,
    "Reciprocal": each(ops.reciprocal),
    "Relu": relu,
    "Round": named("round"),
    "Selu": parametrized(_selu, alpha=1.6732632423543772, gamma=1.0507009873554805),
    "Shrink": parametrized(ops.shrink, bias=0.0, lambd=0.5),
    "Sigmoid": each(ops.sigmoid),
    "Sign": each(ops.sign),
    "Sin": named("sin"),
    "Sinh": named("sinh"),
    "Softplus": each(ops.softplus),
    "Softsign": each(ops.softsign),
    "Sqrt": named("sqrt"),
    "Sub": neutral(lambda a, b: a - b, 0),
    "Sum": folded(lambda a, b: a + b),
    "Swish": swish,
    "Tan": named("tan"),
    "Tanh": named("tanh"),
    "ThresholdedRelu": parametrized(lambda e, alpha: where(e > alpha, e, 0), alpha=1.0),
    "Where": select,
    "Xor": tested(lambda a, b: a.differs(b)),
}
