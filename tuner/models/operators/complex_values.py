"""Complex numbers as pairs of real values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tuner.models.operators.contraction import matmul
from tuner.models.operators.elementwise import atan2, elementwise, hypot
from tuner.models.operators.movement import along, concatenate, expand, reshape
from tuner.models.operators.scalars import Elem, unary, where
from tuner.models.operators.spectrum import dft
from tuner.models.operators.values import Value

_WRITTEN_OUT = 8  # the greatest exponent whose power is written as products


@dataclass(frozen=True)
class Complex:
    """Two values of one shape and dtype. Raises ValueError for others."""

    real: Value
    imaginary: Value
    rank: int = field(init=False)
    shape: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        if (self.real.shape, self.real.dtype) != (self.imaginary.shape, self.imaginary.dtype):
            raise ValueError(f"parts of shapes {self.real.shape} and {self.imaginary.shape}")
        object.__setattr__(self, "rank", self.real.rank)
        object.__setattr__(self, "shape", self.real.shape)

    @property
    def is_real(self) -> bool:
        """Whether the imaginary part is known to be 0."""
        array = self.imaginary.array
        return array is not None and not array.any()

    def each(self, function: Callable[[Value], Value]) -> Complex:
        return Complex(function(self.real), function(self.imaginary))


def from_real(x: Value) -> Complex:
    return Complex(x, expand(x.builder.constant(0, x.dtype), x.shape))


def from_pairs(x: Value) -> Complex:
    """Of a value whose last dimension has the two parts."""
    last = x.rank - 1
    real, imaginary = (reshape(along(x, last, part, 1), x.shape[:-1]) for part in (0, 1))
    return Complex(real, imaginary)


def pairs(x: Complex) -> Value:
    """With the two parts as last dimension."""
    parts = (reshape(part, [*part.shape, 1]) for part in (x.real, x.imaginary))
    return concatenate([*parts], x.rank)


def conjugate(x: Complex) -> Complex:
    return Complex(x.real, elementwise("conj", lambda e: -e, x.imaginary))


def add(a: Complex, b: Complex) -> Complex:
    parts = ((a.real, b.real), (a.imaginary, b.imaginary))
    return Complex(*(elementwise("add", lambda p, q: p + q, *pair) for pair in parts))


def multiply(a: Complex, b: Complex) -> Complex:
    operands = (a.real, a.imaginary, b.real, b.imaginary)
    return Complex(
        elementwise("mul", lambda p, q, r, s: p * r - q * s, *operands),
        elementwise("mul", lambda p, q, r, s: p * s + q * r, *operands),
    )


def divide(a: Complex, b: Complex) -> Complex:
    """By Smith's method ("Algorithm 116", 1962), which does not overflow where the result
    does not."""
    operands = (a.real, a.imaginary, b.real, b.imaginary)

    def quotient(p: Elem, q: Elem, r: Elem, s: Elem) -> Elem:
        """The real part, of either part by the order of what is given."""
        wide = unary("abs", r) >= unary("abs", s)
        ratio = where(r.equals(0) & s.equals(0), 0, where(wide, s, r) / where(wide, r, s))
        below = where(wide, r + s * ratio, r * ratio + s)
        return where(wide, p + q * ratio, p * ratio + q) / below

    return Complex(
        elementwise("div", quotient, *operands),
        elementwise("div", lambda p, q, r, s: quotient(q, -p, r, s), *operands),
    )


def exponential(x: Complex) -> Complex:
    parts = (x.real, x.imaginary)
    return Complex(
        elementwise("exp", lambda r, i: unary("exp", r) * unary("cos", i), *parts),
        elementwise("exp", lambda r, i: unary("exp", r) * unary("sin", i), *parts),
    )


def logarithm(x: Complex) -> Complex:
    size = elementwise("log", lambda e: unary("log", e), absolute(x))
    return Complex(size, angle(x))


def power(x: Complex, exponent: float) -> Complex:
    """Small whole exponents as products, others by the angle, which is that of the principal
    value."""
    if exponent in range(1, _WRITTEN_OUT + 1):
        result = x
        for _ in range(int(exponent) - 1):
            result = multiply(result, x)
        return result
    radius = elementwise("pow", lambda e: e**exponent, absolute(x))
    return polar(radius, elementwise("turned", lambda e: e * exponent, angle(x)))


def polar(radius: Value, angle: Value) -> Complex:
    return Complex(
        elementwise("polar", lambda r, a: r * unary("cos", a), radius, angle),
        elementwise("polar", lambda r, a: r * unary("sin", a), radius, angle),
    )


def absolute(x: Complex) -> Value:
    return elementwise("abs", hypot, x.real, x.imaginary)


def angle(x: Complex) -> Value:
    return elementwise("angle", atan2, x.imaginary, x.real)


def product(a: Complex, b: Complex) -> Complex:
    """Of matrices."""
    real, imaginary = (matmul(a.real, part) for part in (b.real, b.imaginary))
    if not a.is_real:
        other, rest = (matmul(a.imaginary, part) for part in (b.imaginary, b.real))
        real = elementwise("sub", lambda p, q: p - q, real, other)
        imaginary = elementwise("add", lambda p, q: p + q, imaginary, rest)
    return Complex(real, imaginary)


def fourier(x: Complex, axes: Sequence[int], *, inverse: bool, scale: float) -> Complex:
    """Along several axes. The sums are multiplied by `scale`, in either direction."""
    factor = scale * (math.prod(x.shape[axis] for axis in axes) if inverse else 1)
    for axis in axes:
        parts = reshape(x.real, [*x.shape, 1]) if x.is_real else pairs(x)
        x = from_pairs(dft(parts, axis, x.shape[axis], inverse=inverse, one_sided=False))
    return x.each(lambda part: _scaled(part, factor))


def fourier_of_real(x: Value, axes: Sequence[int], *, one_sided: bool, scale: float) -> Complex:
    """Along several axes, the last of them one-sided where that is asked for."""
    parts, last = reshape(x, [*x.shape, 1]), axes[-1]
    result = from_pairs(dft(parts, last, x.shape[last], inverse=False, one_sided=one_sided))
    return fourier(result, axes[:-1], inverse=False, scale=scale)


def fourier_to_real(x: Complex, axes: Sequence[int], length: int, scale: float) -> Value:
    """The inverse of one-sided transforms: `length` elements along the last axis."""
    x = fourier(x, axes[:-1], inverse=True, scale=scale)
    result = dft(pairs(x), axes[-1], length, inverse=True, one_sided=True)
    return _scaled(reshape(result, result.shape[:-1]), float(length))


def _scaled(x: Value, factor: float) -> Value:
    return x if factor == 1 else elementwise("scaled", lambda e: e * factor, x)
