"""The error function's complement and inverse and the gamma function's logarithm, of each element
by itself, to the accuracy of float32."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.models.operators.elementwise import is_inf
from tuner.models.operators.scalars import Elem, unary, where

# Numerical Recipes in C, 2nd ed., 1992, section 6.2: of t = 1 / (1 + x / 2).
_ERFC = (
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418,
    0.37409196, 1.00002368, -1.26551223,
)  # fmt: skip
# Giles, "Approximating the erfinv function", GPU Computing Gems 2, 2011.
_ERFINV_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_TAILS = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip
# Numerical Recipes in C, section 6.1, after Lanczos.
_LANCZOS = (
    76.18009172947146, -86.50532032941677, 24.01409824083091, -1.231739572450155,
    0.1208650973866179e-2, -0.5395239384953e-5,
)  # fmt: skip


def erfc(e: Elem) -> Elem:
    """1 - erf(x), with the digits of small results."""
    size = unary("abs", e)
    t = 1 / (1 + 0.5 * size)
    tail = t * unary("exp", _polynomial(_ERFC, t) - size * size)
    return where(size < 0.5, 1 - unary("erf", e), where(e < 0, 2 - tail, tail))


def erfinv(e: Elem) -> Elem:
    """What the error function is x of; infinite at -1 and 1."""
    w = -unary("log", (1 - e) * (1 + e))
    centre = _polynomial(_ERFINV_CENTRE, w - 2.5)
    tails = _polynomial(_ERFINV_TAILS, unary("sqrt", w) - 3)
    is_end = unary("abs", e).equals(1)
    return where(is_end, e * math.inf, where(w < 5, centre, tails) * e)


def log_gamma(e: Elem) -> Elem:
    """The logarithm of the gamma function's absolute value."""
    is_left = e < 0.5
    x = where(is_left, 1 - e, e)
    series = 1.000000000190015 + _LANCZOS[0] / (x + 1)
    for number, factor in enumerate(_LANCZOS[1:], start=2):
        series = series + factor / (x + number)
    begin, root = x + 5.5, math.sqrt(2 * math.pi)
    own = (x + 0.5) * unary("log", begin) - begin + unary("log", root * series / x)
    mirrored = unary("log", math.pi / unary("abs", unary("sin", _of_a_turn(e)))) - own
    return where(is_inf(e), math.inf, where(is_left, mirrored, own))


def digamma(e: Elem) -> Elem:
    """The derivative of the gamma function's logarithm. Abramowitz and Stegun, 6.3.6, 6.3.7 and
    6.3.18."""
    is_left = e < 0.5
    x = where(is_left, 1 - e, e)
    far = x + 6
    square = 1 / (far * far)
    own = unary("log", far) - 0.5 / far - _polynomial((1 / 252, -1 / 120, 1 / 12, 0), square)
    for step in range(6):
        own = own - 1 / (x + step)
    mirrored = own - math.pi / unary("tan", _of_a_turn(e))
    return where(is_left, mirrored, own)


def _polynomial(factors: Sequence[float], x: Elem) -> Elem:
    """Of the factors of falling powers."""
    result = factors[0] * x + factors[1]
    for factor in factors[2:]:
        result = result * x + factor
    return result


def _of_a_turn(e: Elem) -> Elem:
    """pi x less whole multiples of pi, which sines and tangents know up to their sign."""
    return math.pi * (e - unary("floor", e))
