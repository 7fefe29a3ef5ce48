"""Probabilities of classes from those of pairs of them."""

from __future__ import annotations

import numpy as np

from tuner.models.operators.contraction import einsum
from tuner.models.operators.elementwise import compare, elementwise
from tuner.models.operators.movement import reshape
from tuner.models.operators.reduction import reduce
from tuner.models.operators.scalars import Elem, cast_to, clamp, unary, where
from tuner.models.operators.scans import scan
from tuner.models.operators.values import Value

_MOST_ITERATIONS = 100
_RESIDUAL = 0.005  # over the number of classes: below it a row is done


def coupled(of_first: Value, classes: int) -> Value:
    """The probabilities of classes, [rows, classes], from those that the first of two is the
    right one, [rows, pairs], the pairs in order.

    They are the minimum of the second method of Wu, Lin and Weng, "Probability Estimates for
    Multi-class Classification by Pairwise Coupling", 2004, found as LIBSVM does: coordinate by
    coordinate, for each row until its residual is small.
    """
    builder, dtype, rows = of_first.builder, of_first.dtype, of_first.shape[0]
    matrix = _matrix(of_first, classes)
    columns = builder.constant(np.arange(classes))
    least = _RESIDUAL / classes

    def iteration(going: Value, before: Value) -> tuple[list[Value], list[Value]]:
        product = einsum("btj,bj->bt", matrix, before)
        energy = einsum("bt,bt->b", before, product)
        residual = elementwise(
            "residual", lambda p, e: unary("abs", p - e), product, reshape(energy, [rows, 1])
        )
        greatest = reduce("greatest", "max", residual, [1], keep=True)
        states = [before, product, energy]
        (after, *_), _ = scan(builder, "coordinates", classes, [columns], states, coordinate)
        kept = elementwise("kept", lambda g, a, b: where(g >= least, a, b), greatest, after, before)
        goes_on = compare(
            "goes_on", lambda g: g >= least, reduce("all", "max", greatest, [0, 1], keep=False)
        )
        return [goes_on, kept], []

    def coordinate(
        column: Value, before: Value, product: Value, energy: Value
    ) -> tuple[list[Value], list[Value]]:
        def own() -> Elem:
            return clamp(cast_to("int64", column[()]), 0, classes - 1)

        def descent(b: Elem) -> Elem:
            return (energy[b] - product[b, own()]) / matrix[b, own(), own()]

        step = builder.compute("step", [rows], descent, dtype=dtype)

        def moved(b: Elem, j: Elem) -> Elem:
            return (before[b, j] + where(j.equals(own()), step[b], 0)) / (1 + step[b])

        def image(b: Elem, j: Elem) -> Elem:
            return (product[b, j] + step[b] * matrix[b, own(), j]) / (1 + step[b])

        def reached(b: Elem) -> Elem:
            further = step[b] * (step[b] * matrix[b, own(), own()] + 2 * product[b, own()])
            return (energy[b] + further) / ((1 + step[b]) * (1 + step[b]))

        shape = [rows, classes]
        return [
            builder.compute("moved", shape, moved, dtype=dtype),
            builder.compute("image", shape, image, dtype=dtype),
            builder.compute("reached", [rows], reached, dtype=dtype),
        ], []

    begins = [
        builder.constant(np.array(True)),
        builder.constant(np.full((rows, classes), 1 / classes), dtype),
    ]
    (_, result), _ = scan(
        builder, "coupling", _MOST_ITERATIONS, [], begins, iteration, conditional=True
    )
    return result


def _matrix(of_first: Value, classes: int) -> Value:
    """The quadratic form that is least, [rows, classes, classes]."""
    builder, rows = of_first.builder, of_first.shape[0]
    numbers = np.zeros((classes, classes), np.int64)
    first, second = np.triu_indices(classes, 1)
    numbers[first, second] = numbers[second, first] = np.arange(first.size)
    pairs = builder.constant(numbers)

    def probability(b: Elem, i: Elem, j: Elem) -> Elem:
        """That class i is the right one of i and j."""
        share = of_first[b, clamp(pairs[i, j], 0, first.size - 1)]
        return where(i < j, share, 1 - share)

    def square(b: Elem, t: Elem, j: Elem) -> Elem:
        other = probability(b, j, t)
        return where(j.equals(t), 0, other * other)

    with builder.kernel("pairs"):
        squares = builder.reduce("squares", "sum", [rows, classes], [classes], square)

        def body(b: Elem, t: Elem, j: Elem) -> Elem:
            mixed = -(probability(b, j, t) * probability(b, t, j))
            return where(j.equals(t), squares[b, t], mixed)

        return builder.compute("matrix", [rows, classes, classes], body, dtype=of_first.dtype)
