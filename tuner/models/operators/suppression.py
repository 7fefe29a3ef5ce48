"""Non-maximum suppression: of boxes that overlap the one with the best score."""

from __future__ import annotations

import math

import numpy as np

from tuner.models.operators.elementwise import is_nan
from tuner.models.operators.extents import counted, scalar
from tuner.models.operators.movement import reshape
from tuner.models.operators.scalars import Elem, cast_to, clamp, constant, maximum, minimum, where
from tuner.models.operators.scans import scan
from tuner.models.operators.selection import positions
from tuner.models.operators.values import Value


def non_max_suppression(
    boxes: Value,
    scores: Value,
    most: Value,
    overlap: Value,
    least: Value | None,
    *,
    centered: bool,
    there: Value | None = None,
) -> Value:
    """Rows of batch, class and box [., 3], int64: for each batch and class the boxes with the
    greatest scores, without those that overlap a chosen one by more than a share of the
    area that both cover.

    `boxes` are [batch, n, 4]: two corners, or the centre and both extents if `centered`.
    `scores` are [batch, classes, n]; only those above `least` count. At most `most` boxes of
    a class are chosen. Equal scores go by the number of the box. `there` is the count
    of n.
    """
    builder = boxes.builder
    batch, classes, extent = scores.shape
    limit = extent if most.array is None else min(max(int(most.array.reshape(-1)[0]), 0), extent)
    if not limit:
        return builder.constant(np.empty((0, 3), np.int64))
    corners = _corners(boxes, centered=centered)

    def candidate(b: Elem, c: Elem, n: Elem) -> Elem:
        score = scores[b, c, n]
        is_good = ~is_nan(score) if least is None else score > least[(0,) * least.rank]
        is_good = is_good & (scalar(most) > 0)
        return is_good if there is None else is_good & (n < scalar(there))

    shape = (batch, classes, extent)
    first = builder.compute("candidates", shape, candidate, dtype="bool")
    none = builder.constant(np.full((batch, classes, limit), -1, np.int32))
    begin = [builder.constant(np.array(True)), builder.constant(np.array(0, np.int64)), first, none]

    def step(
        _: Value, number: Value, left: Value, chosen: Value
    ) -> tuple[list[Value], list[Value]]:
        def score(b: Elem, c: Elem, n: Elem) -> Elem:
            return where(left[b, c, n], scores[b, c, n], -math.inf)

        best = builder.reduce("best", "max", shape[:2], (extent,), score, dtype=scores.dtype)

        def place(b: Elem, c: Elem, n: Elem) -> Elem:
            is_best = left[b, c, n] & scores[b, c, n].equals(best[b, c])
            return where(is_best, cast_to("int32", n), extent)

        picked = builder.reduce("picked", "min", shape[:2], (extent,), place, dtype="int32")

        def rest(b: Elem, c: Elem, n: Elem) -> Elem:
            own = cast_to("int64", picked[b, c])
            box = [corners[b, clamp(own, 0, extent - 1), side] for side in range(4)]
            other = [corners[b, n, side] for side in range(4)]
            limit = overlap[(0,) * overlap.rank]
            is_free = n.differs(own) & ~_overlap(box, other, limit)
            return left[b, c, n] & is_free & (number[()] + 1 < scalar(most))

        after = builder.compute("left", shape, rest, dtype="bool")

        def kept(b: Elem, c: Elem, k: Elem) -> Elem:
            is_new = k.equals(number[()]) & (picked[b, c] < extent)
            return where(is_new, picked[b, c], chosen[b, c, k])

        rows = builder.compute("chosen", chosen.shape, kept, dtype="int32")
        some = builder.reduce(
            "some", "min", (), shape[:2], lambda b, c: picked[b, c], dtype="int32"
        )
        going = builder.compute("going", (), lambda: some[()] < extent, dtype="bool")
        following = builder.compute("next", (), lambda: number[()] + 1, dtype="int64")
        return [going, following, after, rows], []

    (*_, chosen), _ = scan(builder, "suppression", limit, [], begin, step, conditional=True)
    flat = reshape(chosen, [chosen.elements])
    is_row = builder.compute("is_row", flat.shape, lambda i: flat[i] >= 0, dtype="bool")
    places = positions(is_row)

    def row(r: Elem, part: Elem) -> Elem:
        i = clamp(places[r], 0, flat.elements - 1)
        box = cast_to("int64", flat[i])
        inner = where(part.equals(1), i // limit % classes, box)
        return where(part.equals(0), i // (limit * classes), inner)

    result = builder.compute("boxes", (flat.elements, 3), row, dtype="int64")
    return counted(result, places.counts)


def _corners(boxes: Value, *, centered: bool) -> Value:
    """The least and the greatest coordinates: [batch, n, 4]."""

    def body(b: Elem, n: Elem, side: Elem) -> Elem:
        axis = side % 2
        first, second = boxes[b, n, axis], boxes[b, n, axis + 2]
        if centered:
            half = second * 0.5
            return where(side < 2, first - half, first + half)
        return where(side < 2, minimum(first, second), maximum(first, second))

    return boxes.builder.compute("corners", boxes.shape, body, dtype=boxes.dtype)


def _overlap(box: list[Elem], other: list[Elem], limit: Elem) -> Elem:
    """Whether two boxes share more than a part of what they cover. Those without an area
    share nothing."""
    zero = constant(0, box[0].dtype)
    sides = [
        maximum(minimum(box[axis + 2], other[axis + 2]) - maximum(box[axis], other[axis]), zero)
        for axis in (0, 1)
    ]
    shared = sides[0] * sides[1]
    areas = [(b[2] - b[0]) * (b[3] - b[1]) for b in (box, other)]
    union = areas[0] + areas[1] - shared
    has_area = (areas[0] > 0) & (areas[1] > 0) & (shared > 0) & (union > 0)
    return has_area & (shared / where(has_area, union, 1) > limit)
