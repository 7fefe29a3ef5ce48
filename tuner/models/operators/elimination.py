"""Gaussian elimination of square matrices, column by column."""

from __future__ import annotations

from math import prod

import numpy as np

from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.movement import reshape
from tuner.models.operators.reduction import arg_extreme
from tuner.models.operators.scalars import Elem, cast_to, clamp, constant, unary, where
from tuner.models.operators.scans import scan
from tuner.models.operators.values import Value


def determinant(x: Value) -> Value:
    """Of the matrices in the last two dimensions: the product of the pivots, which are the
    greatest of what is left of their columns."""
    size = x.shape[-1]
    if x.rank < 2 or x.shape[-2] != size:
        raise ValueError(f"a determinant of shape {list(x.shape)}; matrices must be square")
    batch, dtype = prod(x.shape[:-2]), x.computed_in
    builder = x.builder
    columns = builder.constant(np.arange(size))
    flat = reshape(x, [batch, size, size])
    begin = elementwise("matrix", lambda e: e, flat, dtype=dtype)
    unit = builder.constant(np.ones(batch), dtype)

    def step(column: Value, matrix: Value, product: Value) -> tuple[list[Value], list[Value]]:
        def number() -> Elem:
            return clamp(cast_to("int64", column[()]), 0, size - 1)

        def left(b: Elem, i: Elem) -> Elem:
            return where(i >= number(), unary("abs", matrix[b, i, number()]), -1)

        rest = builder.compute("rest", [batch, size], left, dtype=dtype)
        chosen = arg_extreme(rest, 1, greatest=True, last=False, keep=False)

        def row(b: Elem) -> Elem:
            return clamp(chosen[b], 0, size - 1)

        def exchanged(b: Elem, i: Elem, j: Elem) -> Elem:
            own = where(i.equals(row(b)), matrix[b, number(), j], matrix[b, i, j])
            return where(i.equals(number()), matrix[b, row(b), j], own)

        rows = builder.compute("exchanged", [batch, size, size], exchanged, dtype=dtype)

        def pivot(b: Elem) -> Elem:
            return rows[b, number(), number()]

        def eliminated(b: Elem, i: Elem, j: Elem) -> Elem:
            is_below = (i > number()) & pivot(b).differs(0)
            factor = rows[b, i, number()] / pivot(b)
            return where(is_below, rows[b, i, j] - factor * rows[b, number(), j], rows[b, i, j])

        after = builder.compute("eliminated", [batch, size, size], eliminated, dtype=dtype)

        def multiplied(b: Elem) -> Elem:
            sign = where(row(b).equals(number()), constant(1, dtype), -1)
            return product[b] * pivot(b) * sign

        return [after, builder.compute("pivots", [batch], multiplied, dtype=dtype)], []

    (_, last), _ = scan(builder, "determinant", size, [columns], [begin, unit], step)
    result = reshape(last, x.shape[:-2])
    return elementwise("determinant", lambda e: e, result, dtype=x.dtype)
