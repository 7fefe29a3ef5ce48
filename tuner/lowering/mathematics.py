"""Transcendental functions: libm calls, or float32 polynomials that vectorise, within 4 ulp of the exact value.

The coefficients are Lawson-weighted least-squares fits (near-minimax in relative error, made with 40-digit arithmetic) on the
intervals named beside them. Range: every finite float32 and the infinities; results below the smallest normal number are 0.
NaN stays NaN: of two equal-ranking operands TVM's Max and Min return the second when a comparison fails, so limits come first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import tvm
from tvm import tirx

from tuner.spaces.program import Mathematics

LOG2_E = 1 / math.log(2)
# ln 2 in two parts (Cody & Waite): the first has 9 significant bits, so that its product with an exponent is exact.
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
EXP_LOW, EXP_HIGH = -87.33654, 88.72283  # the first and the last float32 whose results are normal numbers

# exp(r) = 1 + r + r^2 P(r), |r| <= ln(2)/2; fit error 5e-11
EXP = (0.5, 0.1666666567325592, 0.041666291654109955, 0.008333497680723667, 0.0013944776728749275, 0.0001979051885427907)
# tanh(x) = x + x z P(z), z = x^2, |x| <= 0.625; fit error 4e-9
TANH = (-0.3333328068256378, 0.13331423699855804, -0.053737543523311615, 0.020630208775401115, -0.0056933145970106125)
TANH_SMALL, TANH_ONE = 0.625, 10.0  # from 9.02 on it rounds to 1
# erf(x) = x + x P(x^2), |x| <= 1; fit error 1.4e-9
ERF_SMALL = (0.12837916612625122, -0.376126229763031, 0.11283565312623978, -0.02685287967324257, 0.005186380352824926,
             -0.0007991590537130833, 7.78761095716618e-05)  # fmt: skip
# erf(t) = 1 - exp(-t P(t)), 1 <= t <= 3.95 (beyond it erf rounds to 1); fit error 4e-10
ERF_LARGE = (1.1286859512329102, 0.635001540184021, 0.1064806878566742, -0.023969007655978203, 0.003738980507478118,
             -0.00034624553518369794, 1.3546290574595332e-05)  # fmt: skip
# log(1 + f) = f - f^2/2 + f^3 P(f), sqrt(1/2) - 1 <= f <= sqrt(2) - 1; fit error 8e-10
LOG = (0.3333331346511841, -0.25000008940696716, 0.20002125203609467, -0.1666802614927292, 0.14219453930854797,
       -0.12405085563659668, 0.11888319253921509, -0.11678363382816315, 0.0674944519996643)  # fmt: skip


Body = Callable[["tvm.ir.PrimExpr"], "tvm.ir.PrimExpr"]
Naming = Callable[["tvm.ir.PrimExpr", Body], "tvm.ir.PrimExpr"]  # `body` of a value that it uses more than once


def named(value: tvm.ir.PrimExpr, body: Body) -> tvm.ir.PrimExpr:
    """Computed once. Written out at each use, an error function has thousands of terms, and each of the compiler's passes visits
    them all."""
    variable = tirx.Var("x", str(value.ty))
    return tirx.Let(variable, value, body(variable))


def written_out(value: tvm.ir.PrimExpr, body: Body) -> tvm.ir.PrimExpr:
    """For programs with bfloat16 anywhere: TVM 0.27's pass that computes those in float32 passes over the values of names."""
    return body(value)


def unary(op: str, x: tvm.ir.PrimExpr, how: Mathematics, name: Naming = named) -> tvm.ir.PrimExpr:
    """`op` of a scalar; polynomials exist for float32 alone, other dtypes call libm."""
    match op:
        case "neg":
            return -x
        case "not":
            return tirx.Not(x)
        case "abs":
            return tirx.abs(x)
        case "sqrt":
            return tirx.sqrt(x)
        case "rsqrt":
            return tirx.const(1, str(x.ty)) / tirx.sqrt(x)
    if how == "polynomial" and str(x.ty) == "float32":
        return name(x, partial({"exp": _exp, "tanh": _tanh, "erf": _erf, "log": _log}[op], name=name))
    if op == "tanh":
        # TVM expands its own tanh into exponentials, 40 ulp off near zero.
        return tirx.call_pure_extern(str(x.ty), "tanhf" if str(x.ty) == "float32" else "tanh", x)
    return getattr(tirx, op)(x)


def _exp(x: tvm.ir.PrimExpr, *, name: Naming) -> tvm.ir.PrimExpr:
    value = _exp_within(x, name=name)  # beyond its range it is anything
    return tirx.Select(x < _f32(EXP_LOW), _f32(0), tirx.Select(x > _f32(EXP_HIGH), _f32(math.inf), value))


def _exp_within(x: tvm.ir.PrimExpr, *, name: Naming) -> tvm.ir.PrimExpr:
    """exp of what is known to lie between EXP_LOW and EXP_HIGH, and NaN of NaN: 2^n exp(r) by adding n to the exponent of exp(r).
    That neither overflows where n is 128, since r is negative there, nor leaves the normal numbers where n is -126.

    n of NaN is whatever the machine makes of it, on x86 -2^31, whose shift by 23 bits leaves NaN as it is.
    """

    def of(n: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
        r = x - n * _f32(LN2_HIGH) - n * _f32(LN2_LOW)
        mantissa = name(r, partial(_polynomial, (1.0, 1.0, *EXP)))
        bits = tirx.reinterpret("int32", mantissa) + tirx.shift_left(n.astype("int32"), tirx.const(23, "int32"))
        return tirx.reinterpret("float32", bits)

    return name(tirx.floor(x * _f32(LOG2_E) + _f32(0.5)), of)


def _tanh(x: tvm.ir.PrimExpr, *, name: Naming) -> tvm.ir.PrimExpr:
    size = tirx.abs(x)
    small = name(x * x, lambda z: _polynomial(TANH, z) * z * x + x)
    bounded = tirx.Min(_f32(TANH_ONE), size)
    large = _f32(1) - _f32(2) / (name(bounded + bounded, partial(_exp_within, name=name)) + _f32(1))
    return tirx.Select(size < _f32(TANH_SMALL), small, _signed(large, x, name))


def _erf(x: tvm.ir.PrimExpr, *, name: Naming) -> tvm.ir.PrimExpr:
    size = tirx.abs(x)
    small = name(x * x, lambda z: _polynomial(ERF_SMALL, z) * x + x)
    exponent = name(tirx.Min(_f32(4), size), lambda bounded: -(bounded * _polynomial(ERF_LARGE, bounded)))
    return tirx.Select(size < _f32(1), small, _signed(_f32(1) - name(exponent, partial(_exp_within, name=name)), x, name))


def _log(x: tvm.ir.PrimExpr, *, name: Naming) -> tvm.ir.PrimExpr:
    # Subnormal numbers are scaled into the normal range first.
    tiny = x < _f32(1.1754943508222875e-38)
    scaled = tirx.Select(tiny, x * _f32(2.0**23), x)
    bits = tirx.reinterpret("int32", scaled)
    exponent = (tirx.shift_right(bits, tirx.const(23, "int32")) - tirx.const(127, "int32")).astype("float32")
    mantissa = tirx.reinterpret("float32", (bits & tirx.const(0x007FFFFF, "int32")) | tirx.const(0x3F800000, "int32"))
    above = mantissa > _f32(math.sqrt(2))
    n = exponent + tirx.Select(above, _f32(1), _f32(0)) - tirx.Select(tiny, _f32(23), _f32(0))

    def series(f: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
        z = f * f
        return f + (_polynomial(LOG, f) * f * z - _f32(0.5) * z + n * _f32(LN2_LOW)) + n * _f32(LN2_HIGH)

    value = name(tirx.Select(above, mantissa * _f32(0.5), mantissa) - _f32(1), series)
    special = tirx.Select(x < _f32(0), _f32(math.nan), tirx.Select(x == _f32(0), _f32(-math.inf), x))
    return tirx.Select(tirx.And(x > _f32(0), x < _f32(math.inf)), value, special)


def _signed(size: tvm.ir.PrimExpr, x: tvm.ir.PrimExpr, name: Naming) -> tvm.ir.PrimExpr:
    return name(size, lambda size: tirx.Select(x < _f32(0), -size, size))


def _f32(value: float) -> tvm.ir.PrimExpr:
    return tirx.const(value, "float32")


def _polynomial(coefficients: tuple[float, ...], x: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
    """Horner's scheme; `coefficients` by growing power."""
    value = _f32(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + _f32(coefficient)
    return value
