"""Sequences of tensors, which no graph has: lists of values that are known at import. A stack
stands for many tensors, or for a number of them that is only known at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tuner.models.from_onnx import bounded, shapes
from tuner.models.from_onnx.node import Convert, Node, Results
from tuner.models.operators import movement
from tuner.models.operators.extents import count_of, whole
from tuner.models.operators.stacks import Items, Stack, along_new, side_by_side
from tuner.models.operators.values import Value

Made = Callable[[Node], Value | Items]


def number_of(node: Node, items: Items) -> int:
    """The number of tensors. Raises ComputedAtRunTime where it is only known then."""
    total = 0
    for item in items:
        if isinstance(item, Stack) and item.tensors.counts:
            raise node.computed_at_run_time(
                next(iter(item.tensors.counts.values())),
                "takes no sequence whose number of tensors is computed at run time; "
                "ConcatFromSequence and SequenceLength do, the others must know it at import",
            )
        total += item.tensors.shape[0] if isinstance(item, Stack) else 1
    return total


def _place(node: Node, number: int, count: int, *, last: int) -> int:
    """The position that an input says, `last` without one; negative ones count from the end."""
    given = node.known(number)
    place = last if given is None else int(np.asarray(given).reshape(-1)[0])
    if not -count <= place <= last:
        raise node.refusal(f"names position {place} of a sequence of {count} tensors")
    return place + count if place < 0 else place


def _part(items: Items, start: int, end: int) -> Items:
    """Tensors of a sequence of known length from one position to another."""
    part: list[Value | Stack] = []
    begin = 0
    for item in items:
        count = item.tensors.shape[0] if isinstance(item, Stack) else 1
        first, last = max(start - begin, 0), min(end - begin, count)
        if first < last and isinstance(item, Stack):
            part.append(Stack(movement.along(item.tensors, 0, first, last - first)))
        elif first < last:
            part.append(item)
        begin += count
    return tuple(part)


def construct(node: Node) -> Items:
    return tuple(node[place] for place in range(len(node.inputs)))


def at_position(node: Node) -> Value:
    """A tensor at a position that is known, or that is computed where all are alike."""
    place = node[1]
    if place.array is None:
        entries, scalar = _stacked(node), movement.reshape(whole(place), ())
        return _by(node, "Gather", [entries, scalar], shapes.gather, axis=0)
    count = number_of(node, node.items)
    position = _place(node, 1, count, last=count - 1)
    (item,) = _part(node.items, position, position + 1)
    return movement.squeeze(item.tensors, [0]) if isinstance(item, Stack) else item


def _stacked(node: Node) -> Value:
    """All tensors along a new first dimension."""
    kinds = {
        (item.tensors.shape[1:], item.tensors.dtype)
        if isinstance(item, Stack)
        else (item.shape, item.dtype)
        for item in node.items
    }
    if len(kinds) != 1:
        raise node.computed_at_run_time(
            node[1],
            f"computes at run time which of the tensors it reads, which have "
            f"{len(kinds)} shapes; all must have one",
        )
    return _joined(node, [_along(node, item, 0, is_new=True) for item in node.items], 0)


def insert(node: Node) -> Items:
    items = node.items
    if node.optional(2) is None:
        return (*items, node[1])
    count = number_of(node, items)
    place = _place(node, 2, count, last=count)
    return (*_part(items, 0, place), node[1], *_part(items, place, count))


def erase(node: Node) -> Items:
    count = number_of(node, node.items)
    place = _place(node, 1, count, last=count - 1)
    return (*_part(node.items, 0, place), *_part(node.items, place + 1, count))


def length(node: Node) -> Value:
    items = node.items
    if len(items) == 1 and isinstance(items[0], Stack):
        return count_of(items[0].tensors, 0)
    return node.builder.constant(np.array(number_of(node, items), np.int64))


def split(node: Node) -> Items:
    """Slices along an axis, of sizes, of one size with a shorter rest, or single ones, which
    may lose the axis."""
    x, sizes = node[0], node.ints(1)
    axis = int(node.attribute("axis", 0)) % x.rank
    if x.counts:
        raise node.late_extent()
    extent = x.shape[axis]
    if sizes is None:
        single = _alike(x, axis, 1)
        return (single if node.attribute("keepdims", 1) else _without(single, axis),)
    if not node[1].rank:
        (each,) = sizes
        if each < 1:
            raise node.refusal(f"splits into parts of {each} elements")
        sizes = [min(each, extent - begin) for begin in range(0, extent, each)]
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        raise node.refusal(f"splits {extent} elements into {sizes}")
    if len({*sizes}) == 1 and sizes[0]:
        return (_alike(x, axis, sizes[0]),)
    return movement.split(x, axis, sizes)


def _alike(x: Value, axis: int, each: int) -> Stack:
    """Slices of one size."""
    shape = [*x.shape[:axis], x.shape[axis] // each, each, *x.shape[axis + 1 :]]
    order = [axis, *(place for place in range(len(shape)) if place != axis)]
    return Stack(movement.transpose(movement.reshape(x, shape), order))


def _without(stack: Stack, axis: int) -> Stack:
    """The tensors without an axis of one element."""
    return Stack(movement.squeeze(stack.tensors, [1 + axis]))


def concatenation(node: Node) -> Value:
    if not node.items:
        raise node.refusal("joins a sequence without tensors")
    is_new = bool(node.attribute("new_axis", 0))
    first = node.items[0]
    rank = first.tensors.rank - 1 if isinstance(first, Stack) else first.rank
    axis = int(node.attribute("axis", 0)) % (rank + is_new)
    return _joined(node, [_along(node, item, axis, is_new=is_new) for item in node.items], axis)


def _along(node: Node, item: Value | Stack, axis: int, *, is_new: bool) -> Value:
    """The tensors of an item one after the other along an axis of theirs, or a new one."""
    if isinstance(item, Stack):
        return along_new(item, axis) if is_new else side_by_side(item, axis)
    return _by(node, "Unsqueeze", [item], shapes.unsqueeze, axes=[axis]) if is_new else item


def _joined(node: Node, values: Sequence[Value], axis: int) -> Value:
    return values[0] if len(values) == 1 else _by(node, "Concat", values, shapes.concat, axis=axis)


def _by(node: Node, op: str, inputs: Sequence[Value], convert: Convert, **attributes: Any) -> Value:
    """The result of an operator on tensors."""
    other = replace(node, op=op, inputs=tuple(inputs), attributes=attributes, sequences={})
    concerned = bounded.concerns(other)
    return _single(bounded.converted(other, convert) if concerned else convert(other))


def _single(results: Results) -> Value:
    value = results if isinstance(results, Value) else results[0]
    assert value is not None, "these operators have a result"
    return value


OPERATORS: Mapping[str, Made] = {
    "ConcatFromSequence": concatenation,
    "Identity": lambda node: node.items,
    "SequenceAt": at_position,
    "SequenceConstruct": construct,
    "SequenceEmpty": lambda node: (),
    "SequenceErase": erase,
    "SequenceInsert": insert,
    "SequenceLength": length,
    "SplitToSequence": split,
}
# Those that read no sequence.
MAKERS = ("SequenceConstruct", "SequenceEmpty", "SplitToSequence")
