"""Cook and Toom's algorithm: short convolutions with the fewest multiplications.

F(m, r) computes m outputs of a window of r elements from m + r - 1 inputs, with as many
multiplications. Outputs and window are seen as polynomials. Their product is evaluated
at m + r - 2 points and at infinity, multiplied there, and interpolated by Lagrange's
formula (Blahut, "Fast Algorithms for Signal Processing", 2010, section 5.2). The
transposed algorithm computes the correlation that a convolution layer is (Lavin & Gray,
"Fast Algorithms for Convolutional Neural Networks", 2016, section 4).

The points decide the rounding error. Zero, one, two and a half, with both signs, have
products and quotients that float32 holds well (Barabasz, Anderson, Soodhalter & Gregg,
"Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural
Networks", 2020, section 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

# Infinity comes last, beside as many of these as an algorithm needs, in this order.
POINTS = tuple(map(Fraction, ("0", "1", "-1", "2", "-2", "1/2", "-1/2")))

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Terms of a row that another row has too, or has with another factor."""

    factor: Fraction
    terms: tuple[tuple[int, Fraction], ...]  # columns with their factors, the first positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """A matrix, and the columns that opposite points let its rows share.

    Polynomials of opposite points have the same even coefficients and opposite odd ones.
    Powers of opposite points are the same up to sign.
    """

    rows: Matrix
    shared: tuple[tuple[int, ...], ...]  # groups of columns

    def groups(self, number: int) -> tuple[Group, ...]:
        """The terms of a row that are not zero."""
        row = self.rows[number]
        terms = (
            [(column, row[column]) for column in group if row[column]] for group in self.shared
        )
        return tuple(_group(group) for group in terms if group)


def _group(terms: Sequence[tuple[int, Fraction]]) -> Group:
    sizes = {abs(factor) for _, factor in terms}
    sign = 1 if terms[0][1] > 0 else -1
    factor = sign * (sizes.pop() if len(sizes) == 1 else Fraction(1))
    return Group(factor=factor, terms=tuple((column, value / factor) for column, value in terms))


@dataclass(frozen=True, slots=True, kw_only=True)
class Transforms:
    """The matrices of F(m, r): y = outputs · ((window · g) ∘ (inputs · d)), n = m + r - 1."""

    window: Transform  # (n, r), of the window g
    inputs: Transform  # (n, n), of the inputs d
    outputs: Transform  # (m, n), of the products


def transforms(outputs: int, window: int) -> Transforms:
    """F(outputs, window), exact. Raises ValueError where there are too few points."""
    length = outputs + window - 1
    if length - 1 > len(POINTS):
        raise ValueError(f"F({outputs}, {window}) needs {length - 1} points of {len(POINTS)}")
    points = POINTS[: length - 1]
    others = [[other for other in points if other != point] for point in points]
    # Lagrange's polynomial of a point is 1 there and 0 at the others; the sign of its
    # denominator goes to the inputs.
    denominators = [
        prod((point - other for other in rest), start=Fraction(1))
        for point, rest in zip(points, others, strict=True)
    ]
    zero, *places, last = range(length)
    opposites = (tuple(places[start : start + 2]) for start in range(0, len(places), 2))
    infinity = _row([Fraction(0)] * (window - 1) + [Fraction(1)])
    values = [
        tuple(point**power / abs(denominator) for power in range(window))
        for point, denominator in zip(points, denominators, strict=True)
    ]
    polynomials = [
        _row([*_from_roots(rest), Fraction(0)], -1 if denominator < 0 else 1)
        for rest, denominator in zip(others, denominators, strict=True)
    ]
    powers = [
        _row([*(point**power for point in points), Fraction(int(power == outputs - 1))])
        for power in range(outputs)
    ]
    return Transforms(
        window=Transform(rows=(*values, infinity), shared=_by_parity(window)),
        inputs=Transform(rows=(*polynomials, _row(_from_roots(points))), shared=_by_parity(length)),
        outputs=Transform(rows=tuple(powers), shared=((zero,), *opposites, (last,))),
    )


def _by_parity(columns: int) -> tuple[tuple[int, ...], ...]:
    return tuple(range(0, columns, 2)), tuple(range(1, columns, 2))


def _row(values: Sequence[Fraction], sign: int = 1) -> tuple[Fraction, ...]:
    return tuple(value * sign for value in values)


def _from_roots(roots: Sequence[Fraction]) -> list[Fraction]:
    """Coefficients of the monic polynomial with these roots, the constant first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        scaled = [*(root * value for value in coefficients), Fraction(0)]
        coefficients = [high - low for high, low in zip(shifted, scaled, strict=True)]
    return coefficients
