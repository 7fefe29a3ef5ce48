"""Long rows in order, by a network of comparisons: n log(n)^2 of them where comparing all pairs
takes n^2. Batcher, "Sorting networks and their applications", 1968."""

from __future__ import annotations

from math import prod

import numpy as np

from tuner.models.operators.elementwise import after, cast, same
from tuner.models.operators.indexing import gather_elements
from tuner.models.operators.movement import along, reshape, transpose
from tuner.models.operators.scalars import Elem, bitwise, cast_to, clamp, where
from tuner.models.operators.scans import scan
from tuner.models.operators.values import Value


def sorted_positions(x: Value, axis: int, *, greatest: bool) -> Value:
    """The positions of each row's elements in order, int64; equal ones in that of their
    positions. NaN is the greatest."""
    builder, extent = x.builder, x.shape[axis]
    size = 1 << (extent - 1).bit_length()
    order = [*(place for place in range(x.rank) if place != axis), axis]
    outer = [x.shape[place] for place in order[:-1]]
    rows = reshape(transpose(x, order), [prod(outer), extent])
    lengths = [1 << level for level in range(1, size.bit_length())]
    pairs = [(n, n >> s) for n in lengths for s in range(1, n.bit_length())]
    steps = [builder.constant(np.array(column, np.int64)) for column in zip(*pairs, strict=True)]
    begin = builder.constant(np.broadcast_to(np.arange(size, dtype=np.int32), (prod(outer), size)))

    def step(length: Value, distance: Value, places: Value) -> tuple[list[Value], list[Value]]:
        """Pairs so far apart in order, those of every other run backwards."""

        def is_before(row: Elem, first: Elem, second: Elem) -> Elem:
            a, b = (rows[row, clamp(e, 0, extent - 1)] for e in (first, second))
            comes_first = after(a, b) if greatest else after(b, a)
            are_there = (first < extent) & (second < extent)
            is_ordered = comes_first | (same(a, b) & (first < second))
            return (are_there & is_ordered) | ((second >= extent) & (first < second))

        def body(row: Elem, i: Elem) -> Elem:
            apart = distance[()]
            partner = clamp(bitwise("xor", i, apart), 0, size - 1)
            own, other = (cast_to("int64", places[row, e]) for e in (i, partner))
            is_upper = bitwise("bitand", i, apart).differs(0)
            is_backward = bitwise("bitand", i, length[()]).differs(0)
            is_last = is_upper.differs(is_backward)
            chosen = where(is_before(row, own, other).differs(is_last), own, other)
            return cast_to("int32", chosen)

        return [builder.compute("exchanged", places.shape, body, dtype="int32")], []

    (last,), _ = scan(builder, "sort", len(pairs), steps, [begin], step)
    positions = reshape(along(last, 1, 0, extent), [*outer, extent])
    return cast(transpose(positions, np.argsort(order).tolist()), "int64")


def in_order(x: Value, axis: int, *, greatest: bool) -> tuple[Value, Value]:
    """The elements of each row in order, and their positions."""
    positions = sorted_positions(x, axis, greatest=greatest)
    return gather_elements(x, positions, axis), positions
