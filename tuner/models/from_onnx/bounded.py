"""Operators of ONNX on tensors whose extents are computed at run time, up to a bound.

A rule says which dimensions of the results have counts, and gives what lies behind the
counts of the inputs a meaning where the operator would read it. The operator itself is
converted as if all extents were at their bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from tuner.models.from_onnx.node import Convert, Node, Results
from tuner.models.operators import extents, indexing, reduction
from tuner.models.operators.extents import counted, masked, same_count, whole
from tuner.models.operators.movement import along
from tuner.models.operators.scalars import Elem, cast_to, where
from tuner.models.operators.values import Value
from tuner.workload.dtypes import FLOATS
from tuner.workload.expression import Reducer

Rule = Callable[[Node, Convert], Results]
Axes = Mapping[int, int]  # a dimension of an input -> that of the result


def concerns(node: Node) -> bool:
    """Whether an input has an extent that is computed at run time."""
    return any(value is not None and value.counts for value in node.inputs)


def converted(node: Node, convert: Convert) -> Results:
    """The results of an operator that `convert` has for extents known at import.

    Raises ComputedAtRunTime for an operator that does not take others.
    """
    rule = RULES.get(node.op)
    if rule is None or any(value is not None and value.format for value in node.inputs):
        raise node.late_extent()
    return rule(node, convert)


def plain(node: Node, convert: Convert) -> list[Value | None]:
    """The results up to the bounds."""
    inputs = tuple(value and whole(value) for value in node.inputs)
    results = convert(replace(node, inputs=inputs))
    return [results] if isinstance(results, Value) else list(results)


def moved(node: Node, convert: Convert, axes: Axes, source: int = 0) -> list[Value | None]:
    """Where one input alone has counts, and the operator moves its dimensions. One that is
    in no result must have no count."""
    given = node[source].counts
    others = [v for place, v in enumerate(node.inputs) if v is not None and place != source]
    if not given.keys() <= axes.keys() or any(value.counts for value in others):
        raise node.late_extent()
    counts = {axes[axis]: number for axis, number in given.items()}
    return [value and counted(value, counts) for value in plain(node, convert)]


def same(node: Node, convert: Convert) -> Results:
    """The dimensions of the results are those of the first input, element by element."""
    return moved(node, convert, {axis: axis for axis in range(node[0].rank)})


def rows(node: Node, convert: Convert) -> Results:
    """Each entry of the first dimension, the batch, by itself."""
    return moved(node, convert, {0: 0})


def aligned(
    node: Node, values: Iterable[Value], shape: Sequence[int], *, last: int = 0
) -> dict[int, Value]:
    """The counts of a result that inputs are broadcast to, the `last` dimensions aside."""
    counts: dict[int, Value] = {}
    rank = len(shape)
    given = [value for value in values if value.rank > last]
    for value in given:
        for axis, number in value.counts.items():
            place = axis - value.rank + rank
            if axis >= value.rank - last:
                continue
            if value.shape[axis] != shape[place] or not same_count(
                counts.setdefault(place, number), number
            ):
                raise node.late_extent()
    for value in given:
        for place in counts:
            axis = place - rank + value.rank
            if axis >= 0 and axis not in value.counts and value.shape[axis] != 1:
                raise node.late_extent()
    return counts


def broadcast(node: Node, convert: Convert) -> Results:
    """Elementwise on all inputs."""
    results = plain(node, convert)
    values = [value for value in node.inputs if value is not None]
    return [value and counted(value, aligned(node, values, value.shape)) for value in results]


# --- movement


def transpose(node: Node, convert: Convert) -> Results:
    rank = node[0].rank
    order = node.attribute("perm", None) or list(reversed(range(rank)))
    return moved(node, convert, {axis: order.index(axis) for axis in range(rank)})


def unsqueeze(node: Node, convert: Convert) -> Results:
    axes = node.axes(1) or []
    rank = node[0].rank + len(axes)
    added = {axis % rank for axis in axes}
    return moved(node, convert, dict(enumerate(a for a in range(rank) if a not in added)))


def squeeze(node: Node, convert: Convert) -> Results:
    axes = node.axes(1)
    if axes is None:  # it depends on the counts which are units
        raise node.late_extent()
    rank = node[0].rank
    dropped = {axis % rank for axis in axes}
    kept = [axis for axis in range(rank) if axis not in dropped]
    return moved(node, convert, {axis: place for place, axis in enumerate(kept)})


def flatten(node: Node, convert: Convert) -> Results:
    axis = node.attribute("axis", 1)
    if axis % max(node[0].rank, 1) != 1 or {*node[0].counts} != {0}:
        raise node.late_extent()
    return moved(node, convert, {0: 0})


def concat(node: Node, convert: Convert) -> Results:
    values = [node[place] for place in range(len(node.inputs))]
    axis = node.attribute("axis", 0) % values[0].rank
    counts: dict[int, Value] = {}
    for value in values:
        for place, number in value.counts.items():
            if place != axis and not same_count(counts.setdefault(place, number), number):
                raise node.late_extent()
    if any(place not in value.counts for value in values for place in counts):
        raise node.late_extent()
    if not any(axis in value.counts for value in values):
        return [value and counted(value, counts) for value in plain(node, convert)]
    along = [
        counted(whole(value), {axis: value.counts[axis]}) if axis in value.counts else whole(value)
        for value in values
        if value.shape[axis]
    ]
    result = extents.joined(along, axis)
    return counted(whole(result), {**result.counts, **counts})


def split(node: Node, convert: Convert) -> Results:
    axis = node.attribute("axis", 0) % node[0].rank
    return moved(node, convert, {a: a for a in range(node[0].rank) if a != axis})


def gather(node: Node, convert: Convert) -> Results:
    x, indices = node[0], node[1]
    axis = node.attribute("axis", 0) % x.rank
    counts = {
        place if place < axis else place + indices.rank - 1: number
        for place, number in x.counts.items()
        if place != axis
    }
    counts |= {axis + place: number for place, number in indices.counts.items()}
    if axis not in x.counts:
        return [value and counted(value, counts) for value in plain(node, convert)]
    entries = counted(whole(x), {axis: x.counts[axis]})
    return counted(extents.gathered(entries, whole(indices), axis), counts)


def gather_elements(node: Node, convert: Convert) -> Results:
    x, indices = node[0], node[1]
    axis = node.attribute("axis", 0) % x.rank
    for place, number in x.counts.items():
        own = indices.counts.get(place)
        if place == axis or own is None or not same_count(number, own):
            raise node.late_extent()
    return [value and counted(value, indices.counts) for value in plain(node, convert)]


def gather_nd(node: Node, convert: Convert) -> Results:
    x, indices = node[0], node[1]
    depth, outer = indices.shape[-1], indices.rank - 1
    if node.attribute("batch_dims", 0) or outer in indices.counts:
        raise node.late_extent()
    behind = {outer + a - depth: number for a, number in x.counts.items() if a >= depth}
    counts = {**indices.counts, **behind}
    placed = replace(node, inputs=(x, _counted_from_the_end(x, whole(indices))))
    return [value and counted(value, counts) for value in plain(placed, convert)]


def scatter_elements(node: Node, convert: Convert) -> Results:
    """Each index by itself; dimensions with counts are those of the tensor, another axis."""
    x, indices, updates = node[0], node[1], node[2]
    axis = node.attribute("axis", 0) % x.rank
    for place, number in [*indices.counts.items(), *updates.counts.items()]:
        own = x.counts.get(place)
        if place == axis or own is None or not same_count(number, own):
            raise node.late_extent()
    if axis in x.counts:  # from whose end negative indices count
        raise node.late_extent()
    return [value and counted(value, x.counts) for value in plain(node, convert)]


def scatter_nd(node: Node, convert: Convert) -> Results:
    """A count of updates. Slices have the counts of those of the tensor.

    There are as many updates as places, as the standard demands, whatever both are counted by.
    """
    x, indices, updates = node[0], node[1], node[2]
    depth, outer = indices.shape[-1], indices.rank - 1
    numbers = [*indices.counts.items(), *(c for c in updates.counts.items() if c[0] < outer)]
    if any(place or outer != 1 for place, _ in numbers):
        raise node.late_extent()
    for place, number in updates.counts.items():
        own = x.counts.get(place - outer + depth)
        if place >= outer and (own is None or not same_count(number, own)):
            raise node.late_extent()
    places, slices = _counted_from_the_end(x, whole(indices)), whole(updates)
    if numbers:
        bound = min(places.shape[0], slices.shape[0])
        places, slices = (along(value, 0, 0, bound) for value in (places, slices))
    result = indexing.scatter_nd(
        whole(x),
        places,
        slices,
        str(node.attribute("reduction", "none")),
        numbers[0][1] if numbers else None,
    )
    return counted(result, x.counts)


def _counted_from_the_end(x: Value, indices: Value) -> Value:
    """Places in x of which negative ones count from the ends that are there."""
    late = {axis: number for axis, number in x.counts.items() if axis < indices.shape[-1]}
    if not late or (indices.array is not None and indices.array.min(initial=0) >= 0):
        return indices

    def body(*i: Elem) -> Elem:
        place = cast_to("int64", indices[i])
        for axis, number in late.items():
            is_before = i[-1].equals(axis) & (place < 0)
            place = where(is_before, place + extents.scalar(number), place)
        return place

    return indices.builder.compute("places", indices.shape, body, dtype="int64")


def one_hot(node: Node, convert: Convert) -> Results:
    rank = node[0].rank
    axis = node.attribute("axis", -1) % (rank + 1)
    return moved(node, convert, {a: a + (a >= axis) for a in range(rank)})


def pad(node: Node, convert: Convert) -> Results:
    x = node[0]
    widths = node.attribute("pads", None) or node.attribute("paddings", None) or node.ints(1) or []
    axes = [axis % x.rank for axis in node.ints(3) or range(x.rank)]
    wide = {a for n, a in enumerate(axes) if widths[n] or widths[len(axes) + n]}
    return moved(node, convert, {axis: axis for axis in range(x.rank) if axis not in wide})


def tile(node: Node, convert: Convert) -> Results:
    repeats = node.ints(1) or []
    return moved(node, convert, {axis: axis for axis, times in enumerate(repeats) if times == 1})


# --- reductions


def reduced(reducer: Reducer) -> Rule:
    """Over dimensions with counts what lies behind them is made neutral."""

    def rule(node: Node, convert: Convert) -> Results:
        x, axes, keep = node[0], *reduced_axes(node)
        filled = masked(x, reduction.neutral(reducer, x.dtype), axes)
        return kept(replace(node, inputs=(filled, *node.inputs[1:])), convert, x, axes, keep)

    return rule


def reduced_axes(node: Node) -> tuple[tuple[int, ...], bool]:
    given, keep = node.axes(1), bool(node.attribute("keepdims", 1))
    if not given and node.attribute("noop_with_empty_axes", 0):
        return (), keep
    return reduction.normalized(given, node[0].rank), keep


def kept(node: Node, convert: Convert, x: Value, axes: Sequence[int], keep: bool) -> Results:
    """The counts of the dimensions of x that are not reduced."""
    places = [axis for axis in range(x.rank) if keep or axis not in axes]
    counts = {places.index(a): number for a, number in x.counts.items() if a not in axes}
    return [value and counted(value, counts) for value in plain(node, convert)]


def mean(node: Node, convert: Convert) -> Results:
    x, axes, keep = node[0], *reduced_axes(node)
    if not {*axes} & x.counts.keys():
        return kept(node, convert, x, axes, keep)
    if x.dtype not in FLOATS:
        raise node.late_extent()
    result = extents.mean(x, axes, keep=keep)
    return kept(node, lambda _: result, x, axes, keep)


def extreme(greatest: bool) -> Rule:
    def rule(node: Node, convert: Convert) -> Results:
        x = node[0]
        axis = node.attribute("axis", 0) % x.rank
        if axis in x.counts and node.attribute("select_last_index", 0):
            raise node.late_extent()
        filled = masked(x, reduction.neutral("max" if greatest else "min", x.dtype), [axis])
        keep = bool(node.attribute("keepdims", 1))
        return kept(replace(node, inputs=(filled,)), convert, x, [axis], keep)

    return rule


def cumulative(neutral: int) -> Rule:
    """Prefixes read what is before them, and in reverse also what lies behind."""

    def rule(node: Node, convert: Convert) -> Results:
        axis = int(node.scalar(1, 0)) % node[0].rank
        backward = bool(node.attribute("reverse", 0))
        filled = masked(node[0], neutral, [axis]) if backward else node[0]
        results = plain(replace(node, inputs=(filled, *node.inputs[1:])), convert)
        return [value and counted(value, node[0].counts) for value in results]

    return rule


def shares(node: Node, convert: Convert) -> Results:
    """Softmax and its kind: nothing is left for what lies behind."""
    x, newest = node[0], node.opset >= 13
    axis = node.attribute("axis", -1 if newest else 1) % x.rank
    filled = masked(x, -math.inf, [axis] if newest else [*range(axis, x.rank)])
    results = plain(replace(node, inputs=(filled,)), convert)
    return [value and counted(value, x.counts) for value in results]


def normalized(node: Node, convert: Convert) -> Results:
    """Over the last dimensions, whose extents must be known."""
    axis = node.attribute("axis", -1) % node[0].rank
    return moved(node, convert, {a: a for a in range(axis)})


# --- products


def matmul(node: Node, convert: Convert) -> Results:
    a, b = node[0], node[1]
    if a.rank < 2 or b.rank < 2:
        raise node.late_extent()
    inner = (a.counts.get(a.rank - 1), b.counts.get(b.rank - 2))
    a, b = summed(node, a, b, inner)
    (result,) = plain(replace(node, inputs=(a, b)), convert)
    assert result is not None
    counts = aligned(node, node.inputs[:2], result.shape, last=2)  # type: ignore[arg-type]
    ends = {
        result.rank - 2: node[0].counts.get(node[0].rank - 2),
        result.rank - 1: node[1].counts.get(node[1].rank - 1),
    }
    return counted(result, {**counts, **{a: c for a, c in ends.items() if c is not None}})


def summed(
    node: Node, a: Value, b: Value, inner: tuple[Value | None, Value | None]
) -> tuple[Value, Value]:
    """The factors, without what lies behind the count of the dimension that is summed."""
    first, second = inner
    if first is None and second is None:
        return a, b
    if first is None or second is None or not same_count(first, second):
        raise node.late_extent()
    return tuple(
        masked(value, 0, [a for a, c in value.counts.items() if same_count(c, first)])
        for value in (a, b)
    )  # type: ignore[return-value]


def gemm(node: Node, convert: Convert) -> Results:
    a, b, c = node[0], node[1], node.optional(2)
    row, column = bool(node.attribute("transA", 0)), not node.attribute("transB", 0)
    inner = (a.counts.get(int(not row)), b.counts.get(int(not column)))
    filled = summed(node, a, b, inner)
    (result,) = plain(replace(node, inputs=(*filled, *node.inputs[2:])), convert)
    assert result is not None
    ends = {0: a.counts.get(int(row)), 1: b.counts.get(int(column))}
    counts = {axis: number for axis, number in ends.items() if number is not None}
    if c is not None:
        aligned(node, [counted(whole(result), counts), c], result.shape)
    return counted(result, counts)


def sampled(node: Node, convert: Convert) -> Results:
    """An image at a count of places."""
    grid = node[1].counts
    if node[0].counts or {*grid} & {0, node[1].rank - 1}:
        raise node.late_extent()
    counts = {axis + 1: number for axis, number in grid.items()}
    return [value and counted(value, counts) for value in plain(node, convert)]


def regions(node: Node, convert: Convert) -> Results:
    """Of an image for each of a count of boxes."""
    boxes, batches = node[1].counts, node[2].counts
    if node[0].counts or {*boxes} != {0} or {*batches} != {0}:
        raise node.late_extent()
    if not same_count(boxes[0], batches[0]):
        raise node.late_extent()
    return [value and counted(value, boxes) for value in plain(node, convert)]


def by_itself(node: Node, convert: Convert) -> Results:
    """An operator whose row takes counts."""
    return convert(node)


ELEMENTWISE = (
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift",
    "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Ceil", "Celu", "Clip", "Cos", "Cosh",
    "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual",
    "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log",
    "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal",
    "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign",
    "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor",
)  # fmt: skip
ROWS = (
    "AveragePool", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool", "GlobalMaxPool",
    "GroupNormalization", "InstanceNormalization", "LRN", "MaxPool", "SpaceToDepth",
)  # fmt: skip
OWN = (
    "Compress", "ConstantOfShape", "Expand", "NonMaxSuppression", "NonZero", "Range", "Reshape",
    "Shape", "Size", "Slice", "TopK", "Unique",
)  # fmt: skip
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, broadcast),
    **dict.fromkeys(("BatchNormalization", "Cast", "Dropout", "Identity"), same),
    **dict.fromkeys(ROWS, rows),
    **dict.fromkeys(OWN, by_itself),
    "ArgMax": extreme(greatest=True),
    "ArgMin": extreme(greatest=False),
    "Concat": concat,
    "CumProd": cumulative(1),
    "CumSum": cumulative(0),
    "Flatten": flatten,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Gemm": gemm,
    "GridSample": sampled,
    "LayerNormalization": normalized,
    "LogSoftmax": shares,
    "MatMul": matmul,
    "OneHot": one_hot,
    "Pad": pad,
    "RMSNormalization": normalized,
    "ReduceL1": reduced("sum"),
    "ReduceL2": reduced("sum"),
    "ReduceLogSum": reduced("sum"),
    "ReduceLogSumExp": reduced("max"),
    "ReduceMax": reduced("max"),
    "ReduceMean": mean,
    "ReduceMin": reduced("min"),
    "ReduceProd": reduced("prod"),
    "ReduceSum": reduced("sum"),
    "ReduceSumSquare": reduced("sum"),
    "RoiAlign": regions,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Softmax": shares,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
}
