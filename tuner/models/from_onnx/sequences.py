"""Sequences of tensors whose number is known at import: lists of values, which no graph has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tuner.models.from_onnx import bounded, shapes
from tuner.models.from_onnx.node import Node
from tuner.models.operators import movement
from tuner.models.operators.values import Value

Items = tuple[Value, ...]
# Of a node, whose inputs that are sequences are None, and the sequence that it reads.
Made = Callable[[Node, Items], Value | Items]


def _place(node: Node, number: int, count: int, *, last: int) -> int:
    """The position that an input says, `last` without one; negative ones count from the end."""
    given = node.known(number)
    place = last if given is None else int(np.asarray(given).reshape(-1)[0])
    if not -count <= place <= last:
        raise node.refusal(f"names position {place} of a sequence of {count} tensors")
    return place + count if place < 0 else place


def construct(node: Node, _: Items) -> Items:
    return tuple(node[place] for place in range(len(node.inputs)))


def at_position(node: Node, items: Items) -> Value:
    return items[_place(node, 1, len(items), last=len(items) - 1)]


def insert(node: Node, items: Items) -> Items:
    place = _place(node, 2, len(items), last=len(items))
    return (*items[:place], node[1], *items[place:])


def erase(node: Node, items: Items) -> Items:
    place = _place(node, 1, len(items), last=len(items) - 1)
    return (*items[:place], *items[place + 1 :])


def length(node: Node, items: Items) -> Value:
    return node.builder.constant(np.array(len(items), np.int64))


def split(node: Node, _: Items) -> Items:
    """Slices along an axis, of sizes, of one size with a shorter rest, or single ones, which
    may lose the axis."""
    x, sizes = node[0], node.ints(1)
    axis = int(node.attribute("axis", 0)) % x.rank
    if x.counts:
        raise node.late_extent()
    extent = x.shape[axis]
    if sizes is None:
        parts = movement.split(x, axis, [1] * extent)
        keeps = node.attribute("keepdims", 1)
        return parts if keeps else tuple(movement.squeeze(part, [axis]) for part in parts)
    if not node[1].rank:
        (each,) = sizes
        if each < 1:
            raise node.refusal(f"splits into parts of {each} elements")
        sizes = [min(each, extent - begin) for begin in range(0, extent, each)]
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        raise node.refusal(f"splits {extent} elements into {sizes}")
    return movement.split(x, axis, sizes)


def concatenation(node: Node, items: Items) -> Value:
    if not items:
        raise node.refusal("joins a sequence without tensors")
    axis, values = int(node.attribute("axis", 0)), items
    if node.attribute("new_axis", 0):
        axis %= items[0].rank + 1
        values = tuple(movement.unsqueeze(value, [axis]) for value in items)
    joined = Node(
        builder=node.builder,
        op="Concat",
        name=node.name,
        inputs=values,
        outputs=node.outputs,
        attributes={"axis": axis},
        opset=node.opset,
    )
    result = bounded.converted(joined, shapes.concat) if bounded.concerns(joined) else None
    return shapes.concat(joined) if result is None else _single(result)


def _single(results: Value | Sequence[Value | None]) -> Value:
    value = results if isinstance(results, Value) else results[0]
    assert value is not None, "a concatenation has a result"
    return value


OPERATORS: Mapping[str, Made] = {
    "ConcatFromSequence": concatenation,
    "Identity": lambda node, items: items,
    "SequenceAt": at_position,
    "SequenceConstruct": construct,
    "SequenceEmpty": lambda node, items: (),
    "SequenceErase": erase,
    "SequenceInsert": insert,
    "SequenceLength": length,
    "SplitToSequence": split,
}
# Those that read no sequence.
MAKERS = ("SequenceConstruct", "SequenceEmpty", "SplitToSequence")
