"""Operators of a mixture of experts: rows are counted, and multiplied by their group's matrix."""

from __future__ import annotations

from tuner.models.operators.elementwise import cast
from tuner.models.operators.movement import reshape
from tuner.models.operators.scalars import Elem, cast_to, clamp, constant, unary, where
from tuner.models.operators.values import Value
from tuner.workload.dtypes import DType


def histogram(x: Value, bins: int, low: float, high: float) -> Value:
    """How many elements lie in each of the equally wide bins from `low` to `high`, (bins,).

    The last bin includes `high`. What lies beyond, and NaN, is not counted.
    """
    flat = reshape(x, [x.elements])

    def body(b: Elem, k: Elem) -> Elem:
        value = flat[k]
        inside = (value >= low) & (value <= high)
        place = unary("floor", (where(inside, value, low) - low) * bins / (high - low))
        is_hit = inside & cast_to("int64", clamp(place, 0, bins - 1)).equals(b)
        return where(is_hit, constant(1, "int64"), constant(0, "int64"))

    counts = x.builder.reduce("histogram", "sum", (bins,), [x.elements], body, dtype="int64")
    return cast(counts, x.dtype)


def grouped_matmul(rows: Value, matrices: Value, ends: Value, dtype: DType) -> Value:
    """Each row times the matrix of its group, (m, n).

    `rows` is (m, k), `matrices` (groups, k, n). `ends` (groups,) does not decrease: group g
    has the rows from ends[g - 1] on to ends[g]. Rows behind the last are 0.
    """
    groups, depth, columns = matrices.shape
    builder = rows.builder

    def behind(i: Elem, g: Elem) -> Elem:
        is_behind = cast_to("int64", ends[g]) <= i
        return where(is_behind, constant(1, "int64"), constant(0, "int64"))

    group = builder.reduce("group", "sum", (rows.shape[0],), [groups], behind, dtype="int64")

    def product(i: Elem, j: Elem, k: Elem) -> Elem:
        return rows[i, k] * matrices[clamp(group[i], 0, groups - 1), k, j]

    shape = (rows.shape[0], columns)
    products = builder.reduce("grouped_matmul", "sum", shape, [depth], product, dtype=dtype)
    return builder.compute(
        "grouped_matmul",
        shape,
        lambda i, j: where(group[i] < groups, products[i, j], 0),
        dtype=dtype,
    )
