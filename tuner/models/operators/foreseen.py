"""Values inside of a loop whose content is known at import for each of its iterations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from tuner.models.graph import Array
from tuner.models.operators.indexing import gather
from tuner.models.operators.values import PerIteration, Value, Written

MOST_ITERATIONS = 1 << 12  # of a loop that is foreseen
_MOST_ELEMENTS = 1 << 10  # of a value in one iteration


def foreseen(number: Value, rows: Array) -> Value:
    """The row of the iteration `number`, a scalar of the loop; `rows` are of all iterations."""
    builder = number.builder
    if number.array is not None or (rows == rows[:1]).all():
        return builder.constant(rows[int(number.array or 0)])
    counts = rows.dtype == np.int64 and rows.ndim == 1 and (rows == np.arange(len(rows))).all()
    value = number if counts else gather(builder.constant(rows), number, 0)
    return replace(value, made=PerIteration(number=number, rows=rows))


def is_foreseen(values: Sequence[Value | None]) -> bool:
    """Whether all are small and known in each iteration of one loop, some not as constants."""
    return _loop_of(values) is not None


def in_each(
    values: Sequence[Value | None], compute: Callable[[list[Array | None]], Sequence[Array]]
) -> list[Value] | None:
    """What is computed from foreseen values in each iteration; None where that is large, or
    changes its shape."""
    loop = _loop_of(values)
    if loop is None:
        return None
    made: list[Sequence[Array]] = []
    for iteration in range(len(loop.rows)):
        made.append(compute([_at(value, iteration) for value in values]))
        kinds = [(result.shape, result.dtype) for result in made[-1]]
        if kinds != [(first.shape, first.dtype) for first in made[0]]:
            return None
        if any(result.size > _MOST_ELEMENTS for result in made[-1]):
            return None
    return [foreseen(loop.number, np.stack(rows)) for rows in zip(*made, strict=True)]


def rows_of(value: Value, count: int) -> Array:
    """The content of a foreseen value or of a constant in so many iterations."""
    if isinstance(value.made, PerIteration):
        return value.made.rows
    assert value.array is not None
    return np.broadcast_to(value.array, (count, *value.shape))


def written(result: Value, x: Value, content: Value, number: Value, places: Array) -> Value:
    """The result of writing content into x in a loop, with how it came about where each
    iteration writes one contiguous slice, at equal distances.

    `places` [iterations, slices, dimensions] has indices of the first dimensions of x, one for
    each slice of the content; `number` is that of the iteration.
    """
    leading = np.array(x.shape[: places.shape[-1]], np.int64)
    inside = np.where(places < 0, places + leading, places)
    if x.format is not None or x.counts or ((inside < 0) | (inside >= leading)).any():
        return result
    rows = np.ravel_multi_index(tuple(np.moveaxis(inside, -1, 0)), leading.tolist())
    count = rows.shape[1]
    starts, rest = np.divmod(rows[:, 0], count)
    steps = {*np.diff(starts).tolist()} or {1}
    contiguous = (np.diff(rows, axis=1) == 1).all() and not rest.any()
    if not contiguous or prod(leading.tolist()) % count or len(steps) > 1 or 0 in steps:
        return result
    start, step = int(starts[0]), steps.pop()
    made = Written(number=number, whole=x, content=content, start=start, step=step)
    return replace(result, made=made)


def _loop_of(values: Sequence[Value | None]) -> PerIteration | None:
    given = [value for value in values if value is not None]
    loops = [value.made for value in given if isinstance(value.made, PerIteration)]
    is_known = all(
        value.array is not None or isinstance(value.made, PerIteration) for value in given
    )
    small = all(value.elements <= _MOST_ELEMENTS and value.format is None for value in given)
    alike = len({loop.number.tensor for loop in loops}) == 1
    return loops[0] if is_known and small and alike else None


def _at(value: Value | None, iteration: int) -> Array | None:
    if value is None:
        return None
    made = value.made
    return made.rows[iteration] if isinstance(made, PerIteration) else value.array
