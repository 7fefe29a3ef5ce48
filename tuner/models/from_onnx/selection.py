"""Operators of ONNX whose results have extents that depend on values."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tuner.models.from_onnx.node import Convert, Node, Results
from tuner.models.operators import selection
from tuner.models.operators.extents import counted, masked, same_count, whole
from tuner.models.operators.movement import reshape, transpose
from tuner.models.operators.suppression import non_max_suppression
from tuner.models.operators.values import Value


def nonzero(node: Node) -> Value:
    x = masked(node[0], 0)
    if not x.rank:
        raise node.refusal("takes tensors of at least one dimension")
    if not x.elements:
        return node.builder.constant(np.empty((x.rank, 0), np.int64))
    return selection.nonzero(x)


def compress(node: Node) -> Value:
    """Slices along an axis, or elements, where a condition is true."""
    x, condition = node[0], masked(node[1], False)
    axis = node.attribute("axis", None)
    if axis is None and x.rank != 1:
        if x.counts:
            raise node.late_extent()
        x = reshape(x, [x.elements])
    axis = 0 if axis is None else axis % x.rank
    if axis in x.counts and not (0 in node[1].counts and _same(x, axis, node[1], 0)):
        raise node.late_extent()
    if condition.shape[0] > x.shape[axis]:
        raise node.refusal(f"has {condition.shape[0]} conditions for an extent of {x.shape[axis]}")
    result = selection.compress(whole(x), condition, axis)
    others = {place: number for place, number in x.counts.items() if place != axis}
    return counted(result, {**result.counts, **others})


def _same(left: Value, axis: int, right: Value, other: int) -> bool:
    return same_count(left.counts[axis], right.counts[other])


def unique(node: Node) -> Results:
    x, axis = node[0], node.attribute("axis", None)
    if x.counts:
        raise node.late_extent()
    if axis is None:
        rows, rest = reshape(x, [x.elements, 1]), []
    else:
        axis %= x.rank
        moved = transpose(x, [axis, *(place for place in range(x.rank) if place != axis)])
        rest = [*moved.shape[1:]]
        rows = reshape(moved, [moved.shape[0], moved.elements // max(moved.shape[0], 1)])
    if not rows.elements:
        raise node.refusal("has no elements")
    kinds = selection.distinct(rows, ascending=bool(node.attribute("sorted", 1)))
    shaped = reshape(whole(kinds.rows), [rows.shape[0], *rest])
    order = [*range(1, shaped.rank)]
    order.insert(axis or 0, 0)
    result = counted(transpose(shaped, order), {axis or 0: kinds.rows.counts[0]})
    return [result, kinds.places, kinds.inverse, kinds.repeats]


def suppression(node: Node) -> Value:
    boxes, scores = node[0], node[1]
    if 0 in boxes.counts or {0, 1} & {*scores.counts} or 2 in boxes.counts:
        raise node.late_extent()
    there = boxes.counts.get(1)
    other = scores.counts.get(2)
    if (there is None) != (other is None):
        raise node.late_extent()
    if there is not None and other is not None and not same_count(there, other):
        raise node.late_extent()
    builder = node.builder
    most, overlap = node.optional(2), node.optional(3)
    if most is None:
        most = builder.constant(np.array(0, np.int64))
    if overlap is None:
        overlap = builder.constant(np.array(0, np.float32))
    if not scores.elements:
        return builder.constant(np.empty((0, 3), np.int64))
    return non_max_suppression(
        whole(boxes),
        whole(scores),
        most,
        overlap,
        node.optional(4),
        centered=bool(node.attribute("center_point_box", 0)),
        there=there,
    )


TABLE: Mapping[str, Convert] = {
    "Compress": compress,
    "NonMaxSuppression": suppression,
    "NonZero": nonzero,
    "Unique": unique,
}
