"""Operators of QONNX (https://github.com/fastmachinelearning/qonnx), which Brevitas, QKeras and
FINN write: real numbers rounded to those that integers or floats of any width stand for.

As there, each step is rounded to float32, since a number that lies between two integers
depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tuner.models.from_onnx.node import Convert, Node
from tuner.models.operators.elementwise import cast, elementwise
from tuner.models.operators.scalars import (
    Elem,
    bitcast,
    bitwise,
    clamp,
    constant,
    maximum,
    unary,
    where,
)
from tuner.models.operators.values import Value

_MOST_BITS = 32
_NEAREST = "ROUND"  # the default


def _away(e: Elem) -> Elem:
    return where(e < 0, unary("floor", e), unary("ceil", e))


def _half_away(e: Elem) -> Elem:
    return where(e < 0, unary("ceil", e - 0.5), unary("floor", e + 0.5))


def _half_to_zero(e: Elem) -> Elem:
    return where(e < 0, unary("floor", e + 0.5), unary("ceil", e - 0.5))


_ROUNDINGS: Mapping[str, Callable[[Elem], Elem]] = {
    "CEIL": lambda e: unary("ceil", e),
    "DOWN": lambda e: unary("trunc", e),
    "FLOOR": lambda e: unary("floor", e),
    "HALF_DOWN": _half_to_zero,
    "HALF_EVEN": lambda e: unary("round", e),
    "HALF_UP": _half_away,
    _NEAREST: lambda e: unary("round", e),
    "UP": _away,
}


def _rounding(node: Node, default: str = _NEAREST) -> Callable[[Elem], Elem]:
    mode = str(node.attribute("rounding_mode", default)).upper()
    if mode not in _ROUNDINGS:
        raise node.refusal(f"rounds by {mode!r}; {', '.join(_ROUNDINGS)} are taken")
    return _ROUNDINGS[mode]


def _number(node: Node, place: int) -> float:
    """The one number that an input has."""
    array = node.known(place)
    if array is None or np.unique(array).size != 1:
        raise node.refusal(f"has no single number as input {place}, or one for each channel")
    return float(array.reshape(-1)[0])


def _bits(node: Node, place: int, least: int = 1) -> int:
    bits = _number(node, place)
    if bits != int(bits) or not least <= bits <= _MOST_BITS:
        raise node.refusal(f"has {bits:g} bits; {least} to {_MOST_BITS} are taken")
    return int(bits)


def _limits(node: Node, bits: int) -> tuple[float, float]:
    """The least and the greatest integer."""
    narrow = float(node.attribute("narrow", 0))
    if node.attribute("signed", 1):
        half = 2.0 ** (bits - 1)
        return narrow - half, half - 1
    return 0.0, 2.0**bits - 1 - narrow


def _offset(node: Node, place: int) -> list[Value]:
    """A zero point; none where it is 0."""
    zero = node[place]
    return [] if zero.array is not None and not zero.array.any() else [zero]


def _of_each(node: Node, body: Callable[..., Elem], *parameters: Value) -> Value:
    """`body` of each element of the input and of parameters, as float32."""
    return elementwise(node.op, body, *(cast(v, "float32") for v in (node[0], *parameters)))


def _integer(e: Elem, scale: Elem, *zero: Elem) -> Elem:
    """The quotient behind a zero point, before it is rounded to an integer."""
    number = unary("float32", e / scale)
    for z in zero:
        number = unary("float32", number + z)
    return number


def _behind(number: Elem, *zero: Elem) -> Elem:
    for z in zero:
        number = unary("float32", number - z)
    return number


def int_quant(node: Node) -> Value:
    bits, rounded = _bits(node, 3), _rounding(node)
    low, high = _limits(node, bits)
    is_bipolar = bits == 1 and bool(node.attribute("signed", 1))

    def body(e: Elem, scale: Elem, *zero: Elem) -> Elem:
        number = _integer(e, scale, *zero)
        if is_bipolar:
            number = where(number >= 0, constant(1, "float32"), -1)
        else:
            number = rounded(clamp(number, low, high))
        return _behind(number, *zero) * scale

    return _of_each(node, body, node[1], *_offset(node, 2))


def bipolar_quant(node: Node) -> Value:
    return _of_each(node, lambda e, scale: where(e >= 0, scale, -scale), node[1])


def float_quant(node: Node) -> Value:
    """Steps of 2^(exponent - mantissa bits), from the least exponent on. What is beyond the
    greatest number becomes it."""
    exponent_bits, mantissa_bits, bias = _bits(node, 2), _bits(node, 3, least=0), _number(node, 4)
    rounded = _rounding(node)
    if not node.attribute("saturation", 1):
        raise node.refusal("does not saturate; only saturation=1 is taken")
    if exponent_bits > 8 or mantissa_bits > 23 or bias != int(bias) or not -126 <= bias <= 127:
        raise node.refusal(
            f"has {exponent_bits} bits of exponent, {mantissa_bits} of mantissa and the bias "
            f"{bias:g}, which float32 does not hold"
        )
    greatest = (2 - 2.0**-mantissa_bits) * 2.0 ** (2.0**exponent_bits - 1 - bias)
    if node.optional(5) is not None:
        greatest = min(greatest, _number(node, 5))
    least = 1 - int(bias)

    def body(e: Elem, scale: Elem) -> Elem:
        number = unary("float32", e / scale)
        exponent = bitwise("shr", bitcast("int32", unary("abs", number)), 23) - 127
        power = clamp(maximum(exponent, least) - mantissa_bits, -126, 127)
        step = bitcast("float32", bitwise("shl", power + 127, 23))
        return clamp(rounded(number / step) * step, -greatest, greatest) * scale

    return _of_each(node, body, node[1])


def trunc(node: Node) -> Value:
    """Integers without their lowest bits. Version 1 of the operator keeps the scale, version
    2 has limits and a scale of its own for the result."""
    rounded, is_first = _rounding(node, "FLOOR"), len(node.inputs) == 5
    if not is_first and len(node.inputs) != 6:
        raise node.refusal(f"has {len(node.inputs)} inputs; versions of 5 and 6 are taken")
    if is_first:
        scale, factors = node[1], np.exp2(_bits(node, 3) - _bits(node, 4))
        low, high = 0.0, 0.0
    else:
        scale, factors = node[4], np.exp2(np.round(np.log2(_number(node, 4) / _number(node, 1))))
        low, high = _limits(node, _bits(node, 5))
    factor = float(factors)

    def body(e: Elem, before: Elem, after: Elem, *zero: Elem) -> Elem:
        number = unary("round", _integer(e, before, *zero)) / factor
        if is_first:
            return _behind(rounded(number), *zero) * after
        return _behind(rounded(clamp(number, low, high)), *(z / factor for z in zero)) * after

    return _of_each(node, body, node[1], scale, *_offset(node, 2))


def multi_threshold(node: Node) -> Value:
    """How many thresholds, [channels or 1, thresholds], an element is not below."""
    x, thresholds = cast(node[0], "float32"), cast(node[1], "float32")
    is_second = x.rank in (2, 4) and node.attribute("data_layout", "NCHW") == "NCHW"
    axis = 1 if is_second else x.rank - 1
    rows, count = thresholds.shape
    if rows not in (1, x.shape[axis]):
        raise node.refusal(f"has thresholds of {rows} channels for {x.shape[axis]}")
    scale, bias = float(node.attribute("out_scale", 1)), float(node.attribute("out_bias", 0))

    def reached(*i: Elem) -> Elem:
        threshold = thresholds[i[axis] if rows > 1 else 0, i[-1]]
        return where(x[i[:-1]] >= threshold, constant(1, "float32"), 0)

    with node.builder.kernel(node.op):
        number = node.builder.reduce("reached", "sum", x.shape, [count], reached)
        return elementwise("scaled", lambda e: e * scale + bias, number)


TABLE: Mapping[str, Convert] = {
    "BipolarQuant": bipolar_quant,
    "FloatQuant": float_quant,
    "IntQuant": int_quant,
    "MultiThreshold": multi_threshold,
    "Quant": int_quant,
    "Trunc": trunc,
}
