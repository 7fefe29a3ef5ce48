"""Counts of short sequences of integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.models.operators.scalars import Elem, cast_to, clamp, constant, where
from tuner.models.operators.values import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Gram:
    """A sequence that is counted, and the column of the result that its count goes to."""

    numbers: tuple[int, ...]
    column: int


def count_grams(x: Value, grams: Sequence[Gram], columns: int, skips: int) -> Value:
    """How often each gram stands in each row of x [rows, length], [rows, columns].

    Its numbers may have up to `skips` others between each two; a single number counts once.
    Columns that no gram goes to are 0.
    """
    builder, length = x.builder, x.shape[1]
    longest = max(len(gram.numbers) for gram in grams)
    numbers = np.zeros((columns, longest), np.int64)
    lengths = np.zeros(columns, np.int64)
    for gram in grams:
        if lengths[gram.column]:
            raise ValueError(f"two n-grams are counted in column {gram.column}")
        numbers[gram.column, : len(gram.numbers)] = gram.numbers
        lengths[gram.column] = len(gram.numbers)
    pool, sizes = builder.constant(numbers), builder.constant(lengths)

    def body(row: Elem, column: Elem, start: Elem, skip: Elem) -> Elem:
        size = sizes[column]
        is_hit = (size > 1) | (size.equals(1) & skip.equals(0))
        for number in range(longest):
            place = start + (skip + 1) * number
            element = cast_to("int64", x[row, clamp(place, 0, length - 1)])
            is_equal = (place < length) & element.equals(pool[column, number])
            is_hit = is_hit & (is_equal | (size <= number))
        return where(is_hit, constant(1, "float32"), 0)

    return builder.reduce(
        "grams", "sum", [x.shape[0], columns], [length, skips + 1], body, dtype="float32"
    )
