"""Gaussian elimination of matrices, column by column: determinants, systems of equations and
Cholesky factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tuner.models.operators.elementwise import elementwise, sign
from tuner.models.operators.movement import (
    along,
    concatenate,
    expand,
    flip,
    reshape,
    transpose,
    triangle,
)
from tuner.models.operators.reduction import arg_extreme
from tuner.models.operators.scalars import Elem, cast_to, clamp, constant, unary, where
from tuner.models.operators.scans import scan
from tuner.models.operators.values import Value


def determinant(x: Value) -> Value:
    """Of the matrices in the last two dimensions: the product of the pivots, which are the
    greatest of what is left of their columns."""
    begin = _matrices(x, "a determinant")
    unit = x.builder.constant(np.ones(begin.shape[0]), begin.dtype)

    def step(column: Value, matrix: Value, product: Value) -> tuple[list[Value], list[Value]]:
        after, pivots = _Column(matrix, column).exchanged().eliminated()
        return [after, elementwise("pivots", lambda e, p: e * p, product, pivots)], []

    (_, last), _ = scan(x.builder, "determinant", *_columns(begin), [begin, unit], step)
    return _as(x, last, x.shape[:-2])


def sign_and_logarithm(x: Value) -> tuple[Value, Value]:
    """Of the determinants of the matrices: their signs, and the logarithms of their sizes."""
    begin = _matrices(x, "a determinant")
    batch = begin.shape[0]
    states = [x.builder.constant(array, begin.dtype) for array in (np.ones(batch), np.zeros(batch))]

    def step(
        column: Value, matrix: Value, signs: Value, logarithms: Value
    ) -> tuple[list[Value], list[Value]]:
        after, pivots = _Column(matrix, column).exchanged().eliminated()
        return [
            after,
            elementwise("signs", lambda e, p: e * sign(p), signs, pivots),
            elementwise(
                "sizes", lambda e, p: e + unary("log", unary("abs", p)), logarithms, pivots
            ),
        ], []

    (_, *last), _ = scan(x.builder, "determinant", *_columns(begin), [begin, *states], step)
    signs, logarithms = (_as(x, value, x.shape[:-2]) for value in last)
    return signs, logarithms


def solve(a: Value, b: Value, *, exchange: bool = True) -> Value:
    """What a [..., n, n] times gives b [..., n, m], the leading dimensions broadcast; by Gauss
    and Jordan. Without exchange of rows the pivots are those of the diagonal, as fits triangular
    matrices."""
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    size, width = b.shape[-2:]
    left = _matrices(expand(a, [*lead, *a.shape[-2:]]), "a system of equations")
    right = reshape(expand(b, [*lead, size, width]), [prod(lead), size, width])
    right = elementwise("right", lambda e: e, right, dtype=left.dtype)
    begin = concatenate([left, right], 2)

    def step(column: Value, matrix: Value) -> tuple[list[Value], list[Value]]:
        rows = _Column(matrix, column)
        after, _ = (rows.exchanged() if exchange else rows).eliminated(everywhere=True)
        return [after], []

    (last,), _ = scan(a.builder, "solve", *_columns(left), [begin], step)
    return _as(b, along(last, 2, size, width), [*lead, size, width])


def solve_triangular(a: Value, b: Value, *, upper: bool, unit: bool) -> Value:
    """Of the lower (or upper) triangle of a alone, with ones in the diagonal if `unit`."""
    kept = triangle(a, 0, upper=upper)
    if unit:
        kept = a.builder.compute(
            "unit", a.shape, lambda *i: where(i[-1].equals(i[-2]), 1, kept[i]), dtype=a.dtype
        )
    if not upper:
        return solve(kept, b, exchange=False)
    # Backwards an upper triangle is a lower one.
    kept = flip(flip(kept, kept.rank - 1), kept.rank - 2)
    return flip(solve(kept, flip(b, b.rank - 2), exchange=False), b.rank - 2)


def inverse(x: Value) -> Value:
    return solve(x, x.builder.constant(np.eye(x.shape[-1]), x.dtype))


def cholesky(x: Value, *, upper: bool) -> Value:
    """The triangle that times its own transpose gives each of the positive definite matrices."""
    begin = _matrices(x, "a Cholesky factor")

    def step(column: Value, matrix: Value) -> tuple[list[Value], list[Value]]:
        own = _Column(matrix, column)

        def body(b: Elem, i: Elem, j: Elem) -> Elem:
            k = own.number()
            root = unary("sqrt", own.pivot(b))
            rest = matrix[b, i, j] - matrix[b, i, k] * matrix[b, j, k] / own.pivot(b)
            below = where((i > k) & (j > k), rest, matrix[b, i, j])
            return where(j.equals(k) & (i >= k), matrix[b, i, j] / root, below)

        return [x.builder.compute("column", matrix.shape, body, dtype=matrix.dtype)], []

    (last,), _ = scan(x.builder, "cholesky", *_columns(begin), [begin], step)
    factor = triangle(_as(x, last, x.shape), 0, upper=False)
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    return transpose(factor, order) if upper else factor


@dataclass(frozen=True)
class _Column:
    """Matrices [batch, rows, columns] at the step that eliminates one of their columns."""

    matrix: Value
    column: Value  # its number, a scalar
    sign: Value | None = None  # [batch], of the exchange

    def number(self) -> Elem:
        return clamp(cast_to("int64", self.column[()]), 0, self.matrix.shape[1] - 1)

    def pivot(self, b: Elem) -> Elem:
        return self.matrix[b, self.number(), self.number()]

    def exchanged(self) -> _Column:
        """With the greatest of what is left of the column as pivot."""
        matrix, number, builder = self.matrix, self.number, self.matrix.builder
        batch, size, _ = matrix.shape

        def left(b: Elem, i: Elem) -> Elem:
            return where(i >= number(), unary("abs", matrix[b, i, number()]), -1)

        rest = builder.compute("rest", [batch, size], left, dtype=matrix.dtype)
        chosen = arg_extreme(rest, 1, greatest=True, last=False, keep=False)

        def row(b: Elem) -> Elem:
            return clamp(chosen[b], 0, size - 1)

        def exchanged(b: Elem, i: Elem, j: Elem) -> Elem:
            own = where(i.equals(row(b)), matrix[b, number(), j], matrix[b, i, j])
            return where(i.equals(number()), matrix[b, row(b), j], own)

        def turned(b: Elem) -> Elem:
            return where(row(b).equals(number()), constant(1, matrix.dtype), -1)

        return _Column(
            builder.compute("exchanged", matrix.shape, exchanged, dtype=matrix.dtype),
            self.column,
            builder.compute("sign", [batch], turned, dtype=matrix.dtype),
        )

    def eliminated(self, *, everywhere: bool = False) -> tuple[Value, Value]:
        """The matrices with zeros below the pivot, and the pivots [batch] with the signs of the
        exchanges. Or with zeros `everywhere` else in the column, and the pivot as 1."""
        rows, number, pivot = self.matrix, self.number, self.pivot

        def body(b: Elem, i: Elem, j: Elem) -> Elem:
            factor = rows[b, i, number()] / pivot(b)
            rest = rows[b, i, j] - factor * rows[b, number(), j]
            if everywhere:
                return where(i.equals(number()), rows[b, i, j] / pivot(b), rest)
            is_below = (i > number()) & pivot(b).differs(0)
            return where(is_below, rest, rows[b, i, j])

        def signed(b: Elem) -> Elem:
            return pivot(b) if self.sign is None else pivot(b) * self.sign[b]

        builder, (batch, *_) = rows.builder, rows.shape
        return (
            builder.compute("eliminated", rows.shape, body, dtype=rows.dtype),
            builder.compute("pivots", [batch], signed, dtype=rows.dtype),
        )


def _matrices(x: Value, what: str) -> Value:
    """The matrices [batch, n, n], in the dtype they are computed in."""
    size = x.shape[-1]
    if x.rank < 2 or x.shape[-2] != size:
        raise ValueError(f"{what} of shape {list(x.shape)}; matrices must be square")
    flat = reshape(x, [prod(x.shape[:-2]), size, size])
    return elementwise("matrix", lambda e: e, flat, dtype=x.computed_in)


def _columns(matrices: Value) -> tuple[int, list[Value]]:
    """How many steps a scan takes, and its inputs: the number of the column."""
    size = matrices.shape[1]
    return size, [matrices.builder.constant(np.arange(size))]


def _as(x: Value, result: Value, shape: Sequence[int]) -> Value:
    """A result in a shape and the dtype of x."""
    return elementwise("result", lambda e: e, reshape(result, shape), dtype=x.dtype)
