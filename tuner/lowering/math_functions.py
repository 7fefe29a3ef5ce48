"""Transcendental functions: calls of libm, or float32 polynomials that vectorise.

The polynomials are within 4 ulp of the exact value for every finite float32 and the
infinities; results below the smallest normal number are 0. The coefficients are
Lawson-weighted least-squares fits, near-minimax in relative error, made with 40-digit
arithmetic on the intervals named beside them.

NaN stays NaN. TVM's Max and Min return their second operand when a comparison fails, so
limits come first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import tvm
from tvm import tirx

from tuner.spaces.program.program import MathFunctions
from tuner.workload.dtypes import UNSIGNED

LOG2_E = 1 / math.log(2)
# ln 2 in two parts (Cody & Waite): the first has 9 significant bits, so that its
# product with an exponent is exact.
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
# The first and the last float32 whose exponentials are normal numbers.
EXP_LOW, EXP_HIGH = -87.33654, 88.72283

# exp(r) = 1 + r + r^2 P(r), |r| <= ln(2)/2; fit error 5e-11
EXP = (
    0.5,
    0.1666666567325592,
    0.041666291654109955,
    0.008333497680723667,
    0.0013944776728749275,
    0.0001979051885427907,
)
TANH_ONE = 10.0  # tanh rounds to 1 from 9.02 on
# erf(x) = x P(w), w = ERF_SCALE x^2 - 1, |x| <= ERF_ONE. From ERF_ONE on, erf rounds to 1
# and x P(w) is 1 to the last bit. In powers of x^2 instead of w the terms would cancel. Fit
# error 5e-9; each coefficient was rounded before those below it were fitted.
ERF_ONE, ERF_SCALE = 3.91, 0.13082070648670197
ERF = (
    0.3616580665111542, -0.18055883049964905, 0.13438653945922852, -0.1093590036034584,
    0.09065892547369003, -0.07388564944267273, 0.057956743985414505, -0.0432528518140316,
    0.030212316662073135, -0.01940172165632248, 0.012151229195296764, -0.007894975133240223,
    0.004020567052066326, -0.0010756178526207805, 0.0006855198880657554, -0.0008837022469379008,
    0.0003369052428752184,
)  # fmt: skip
# log(1 + f) = f - f^2/2 + f^3 P(f), sqrt(1/2) - 1 <= f <= sqrt(2) - 1; fit error 8e-10
LOG = (
    0.3333331346511841, -0.25000008940696716, 0.20002125203609467, -0.1666802614927292,
    0.14219453930854797, -0.12405085563659668, 0.11888319253921509, -0.11678363382816315,
    0.0674944519996643,
)  # fmt: skip


Body = Callable[["tvm.ir.PrimExpr"], "tvm.ir.PrimExpr"]
# `body` of a value that it uses more than once.
Naming = Callable[["tvm.ir.PrimExpr", Body], "tvm.ir.PrimExpr"]


def named(value: tvm.ir.PrimExpr, body: Body) -> tvm.ir.PrimExpr:
    """`body` of a value computed once, under a name.

    Written out at each use, an error function has thousands of terms, and each of the
    compiler's passes visits them all.
    """
    variable = tirx.Var("x", str(value.ty))
    return tirx.Let(variable, value, body(variable))


def written_out(value: tvm.ir.PrimExpr, body: Body) -> tvm.ir.PrimExpr:
    """`body` of a value written out at each use, for programs with bfloat16 anywhere.

    TVM 0.27's pass that computes bfloat16 in float32 skips the values of names.
    """
    return body(value)


def unary(op: str, x: tvm.ir.PrimExpr, how: MathFunctions, name: Naming = named) -> tvm.ir.PrimExpr:
    """`op` of a scalar. Polynomials exist for float32 only; other dtypes call libm.

    `name` decides how a value that is used more than once is written.
    """
    match op:
        case "neg" if str(x.ty) in UNSIGNED:
            return tirx.reinterpret(str(x.ty), tirx.const(0, str(x.ty)) - x)
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
        case "isnan":
            return tirx.isnan(x)
        case "round":
            return tirx.nearbyint(x)
        case "floor" | "ceil" | "trunc":
            return getattr(tirx, op)(x)
    polynomials = {"exp": _exp, "tanh": _tanh, "erf": _erf, "log": _log}
    if how == "polynomial" and str(x.ty) == "float32" and op in polynomials:
        return name(x, partial(polynomials[op], name=name))
    if op in ("exp", "log", "erf"):
        return getattr(tirx, op)(x)
    # TVM expands some functions of its own, tanh into exponentials, 40 ulp off near zero.
    return tirx.call_pure_extern(str(x.ty), f"{op}f" if str(x.ty) == "float32" else op, x)


def _exp(x: tvm.ir.PrimExpr, *, name: Naming) -> tvm.ir.PrimExpr:
    value = _exp_within(x, name=name)  # undefined beyond its range
    return tirx.Select(
        x < _f32(EXP_LOW), _f32(0), tirx.Select(x > _f32(EXP_HIGH), _f32(math.inf), value)
    )


def _exp_within(x: tvm.ir.PrimExpr, *, name: Naming) -> tvm.ir.PrimExpr:
    """exp of a value between EXP_LOW and EXP_HIGH, and NaN of NaN.

    2^n exp(r) is made by adding n to the exponent of exp(r). That does not overflow
    where n is 128, since r is negative there, and stays normal where n is -126.

    n of NaN is whatever the machine converts it to, on x86 -2^31, whose shift by 23
    bits leaves NaN as it is. LLVM leaves out what it knows to be NaN; such kernels fail
    their verification, and libm's functions are used instead. Rounding by adding 1.5 *
    2^23, which is defined for NaN too, took 0 to 9% longer on an AMD EPYC (znver3).
    """

    def of(n: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
        mantissa = name(_remainder(x, n), partial(_polynomial, (1.0, 1.0, *EXP)))
        bits = tirx.reinterpret("int32", mantissa) + tirx.shift_left(
            n.astype("int32"), tirx.const(23, "int32")
        )
        return tirx.reinterpret("float32", bits)

    return name(_exponent(x), of)


def _exponent(x: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
    """n of exp(x) = 2^n exp(r), |r| <= ln(2)/2."""
    return tirx.floor(x * _f32(LOG2_E) + _f32(0.5))


def _remainder(x: tvm.ir.PrimExpr, n: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
    """r of exp(x) = 2^n exp(r), with ln 2 in two parts."""
    return x - n * _f32(LN2_HIGH) - n * _f32(LN2_LOW)


def _exp_less_one(x: tvm.ir.PrimExpr, *, name: Naming) -> tvm.ir.PrimExpr:
    """exp(x) - 1 = 2^n (exp(r) - 1) + (2^n - 1), which cancels nowhere.

    For values between -87 and 87, and NaN of NaN.
    """

    def of(n: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
        less_one = name(_remainder(x, n), lambda r: r * r * _polynomial(EXP, r) + r)
        biased = n.astype("int32") + tirx.const(127, "int32")
        power = tirx.reinterpret("float32", tirx.shift_left(biased, tirx.const(23, "int32")))
        return name(power, lambda power: less_one * power + (power - _f32(1)))

    return name(_exponent(x), of)


def _tanh(x: tvm.ir.PrimExpr, *, name: Naming) -> tvm.ir.PrimExpr:
    """E / (E + 2) with E = exp(2x) - 1, within 2.5 ulp.

    A rational function of x alone is 4.6 ulp off where it nears 1.
    """
    bounded = tirx.Max(_f32(-TANH_ONE), tirx.Min(_f32(TANH_ONE), x))
    less_one = name(bounded + bounded, partial(_exp_less_one, name=name))

    def of(less_one: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
        return _with_sign_of(x, less_one / (less_one + _f32(2)))

    return name(less_one, of)


def _with_sign_of(x: tvm.ir.PrimExpr, value: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
    """A value with the sign of x set. Elsewhere than at -0 it has that sign already."""
    sign = tirx.reinterpret("int32", x) & tirx.const(-(2**31), "int32")
    return tirx.reinterpret("float32", tirx.reinterpret("int32", value) | sign)


def _erf(x: tvm.ir.PrimExpr, *, name: Naming) -> tvm.ir.PrimExpr:
    """A polynomial, within 3.8 ulp and never beyond 1.

    By way of an exponential, within 1.7 ulp, it takes half as many operations again,
    and GELU is then bound by them.
    """

    def of(x: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
        return _rounded(x * name(x * x * _f32(ERF_SCALE) - _f32(1), partial(_polynomial, ERF)))

    return name(tirx.Max(_f32(-ERF_ONE), tirx.Min(_f32(ERF_ONE), x)), of)


def _rounded(value: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
    """The value, which LLVM does not fuse with what is done with it.

    The product that -1 is rounded from is not -1, and 1 + erf(x) would not be 0.
    """
    return tirx.call_llvm_pure_intrin(str(value.ty), "llvm.arithmetic.fence", value)


def _log(x: tvm.ir.PrimExpr, *, name: Naming) -> tvm.ir.PrimExpr:
    # Subnormal numbers are scaled into the normal range first.
    """log(2^n m) = n ln 2 + log(m), with m between sqrt(1/2) and sqrt(2)."""
    tiny = x < _f32(1.1754943508222875e-38)
    scaled = tirx.Select(tiny, x * _f32(2.0**23), x)
    bits = tirx.reinterpret("int32", scaled)
    exponent = (tirx.shift_right(bits, tirx.const(23, "int32")) - tirx.const(127, "int32")).astype(
        "float32"
    )
    mantissa = tirx.reinterpret(
        "float32", (bits & tirx.const(0x007FFFFF, "int32")) | tirx.const(0x3F800000, "int32")
    )
    above = mantissa > _f32(math.sqrt(2))
    n = exponent + tirx.Select(above, _f32(1), _f32(0)) - tirx.Select(tiny, _f32(23), _f32(0))

    def series(f: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
        z = f * f
        return (
            f
            + (_polynomial(LOG, f) * f * z - _f32(0.5) * z + n * _f32(LN2_LOW))
            + n * _f32(LN2_HIGH)
        )

    value = name(tirx.Select(above, mantissa * _f32(0.5), mantissa) - _f32(1), series)
    special = tirx.Select(
        x < _f32(0), _f32(math.nan), tirx.Select(x == _f32(0), _f32(-math.inf), x)
    )
    return tirx.Select(tirx.And(x > _f32(0), x < _f32(math.inf)), value, special)


def _f32(value: float) -> tvm.ir.PrimExpr:
    return tirx.const(value, "float32")


def _polynomial(coefficients: tuple[float, ...], x: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
    """Horner's scheme. `coefficients` are in order of growing power."""
    value = _f32(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + _f32(coefficient)
    return value
