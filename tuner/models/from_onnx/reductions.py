"""Reductions, normalisations and ordering operators of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from math import prod

from tuner.models.from_onnx.node import Convert, Node, Results
from tuner.models.operators import normalization as norms
from tuner.models.operators import reduction as ops
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.extents import count, count_of, counted, masked, scalar, whole
from tuner.models.operators.movement import reshape
from tuner.models.operators.scalars import Elem, clamp, constant, index, minimum, unary, where
from tuner.models.operators.values import Value
from tuner.workload.expression import Reducer


def _axes(node: Node) -> tuple[tuple[int, ...], bool]:
    """Those to reduce and whether they stay; none where the operator does nothing."""
    given = node.axes(1)
    keep = bool(node.attribute("keepdims", 1))
    if not given and node.attribute("noop_with_empty_axes", 0):
        return (), keep
    return ops.normalized(given, node[0].rank), keep


def reduced(
    reducer: Reducer,
    before: Callable[[Elem], Elem] = lambda e: e,
    after: Callable[[Elem], Elem] | None = None,
) -> Convert:
    def convert(node: Node) -> Value:
        label = node.op.lower()
        if (chosen := _late_axes(node)) is not None:
            total = _along_chosen(
                elementwise(label, before, node[0]),
                chosen,
                lambda x, axis: ops.reduce(label, reducer, x, [axis], keep=True),
            )
            return (
                total
                if after is None
                else counted(elementwise(label, after, whole(total)), total.counts)
            )
        axes, keep = _axes(node)
        with node.builder.kernel(label):
            total = ops.reduce(label, reducer, node[0], axes, keep=keep, function=before)
            return total if after is None else elementwise(label, after, total)

    return convert


def mean(node: Node) -> Value:
    if (chosen := _late_axes(node)) is not None:
        return _along_chosen(node[0], chosen, lambda x, axis: ops.mean(x, [axis], keep=True))
    axes, keep = _axes(node)
    return ops.mean(node[0], axes, keep=keep) if axes else node[0]


def log_sum_exp(node: Node) -> Value:
    if (chosen := _late_axes(node)) is not None:
        return _along_chosen(node[0], chosen, lambda x, axis: ops.log_sum_exp(x, [axis], keep=True))
    axes, keep = _axes(node)
    return ops.log_sum_exp(node[0], axes, keep=keep)


def _late_axes(node: Node) -> list[Elem] | None:
    """For each dimension whether it is reduced, where that is computed at run time; None
    where it is known at import."""
    given = node.optional(1)
    if given is None or given.array is not None or "axes" in node.attributes:
        return None
    rank = node[0].rank
    if not given.elements or not rank:
        return None
    if not node.attribute("keepdims", 1) or node[0].counts or not node[0].elements:
        raise node.late_number(1)  # the result has dimensions that no bound is known of
    named = node.elements(1)

    def chosen(axis: int) -> Elem:
        equal = [(name.equals(axis) | name.equals(axis - rank)) for name in map(index, named)]
        return reduce(Elem.__or__, equal)

    return [chosen(axis) for axis in range(rank)]


def _along_chosen(x: Value, chosen: list[Elem], along: Callable[[Value, int], Value]) -> Value:
    """One dimension after the other: reduced to one element, or as it was."""
    extents: dict[int, Value] = {}
    for axis, is_chosen in enumerate(chosen):
        before, total = x, along(x, axis)

        def body(*i: Elem, axis: int = axis, before: Value = before, total: Value = total) -> Elem:
            edge = [*i]
            edge[axis] = constant(0, "int64")
            return where(chosen[axis], total[tuple(edge)], before[i])

        x = x.builder.compute("reduced", x.shape, body, dtype=x.dtype)
        extents[axis] = count(x, where(is_chosen, constant(1, "int64"), x.shape[axis]))
    return counted(x, extents)


def arg_extreme(greatest: bool) -> Convert:
    def convert(node: Node) -> Value:
        x = node[0]
        return ops.arg_extreme(
            x,
            node.attribute("axis", 0) % x.rank,
            greatest=greatest,
            last=bool(node.attribute("select_last_index", 0)),
            keep=bool(node.attribute("keepdims", 1)),
        )

    return convert


def cumulative(reducer: Reducer) -> Convert:
    def convert(node: Node) -> Value:
        x, given = node[0], node.optional(1)

        def along(axis: int) -> Value:
            return ops.cumulative(
                x,
                axis,
                reducer,
                exclusive=bool(node.attribute("exclusive", 0)),
                reverse=bool(node.attribute("reverse", 0)),
            )

        if given is None or given.array is not None:
            return along(int(node.scalar(1, 0)) % x.rank)
        # One that is known at run time is one of a few.
        results = [along(axis) for axis in range(x.rank)]

        def body(*i: Elem) -> Elem:
            chosen = results[0][i]
            for axis, result in enumerate(results[1:], start=1):
                is_it = scalar(given).equals(axis) | scalar(given).equals(axis - x.rank)
                chosen = where(is_it, result[i], chosen)
            return chosen

        return x.builder.compute("cumulative", x.shape, body, dtype=x.dtype)

    return convert


def top_k(node: Node) -> Results:
    """Of the elements that are there. What is less or greater than all stands for others."""
    x, axis = node[0], node.attribute("axis", -1) % node[0].rank
    greatest = bool(node.attribute("largest", 1))
    (k,) = node.elements(1) or [int(node.attribute("k", 1))]
    others = {place: number for place, number in x.counts.items() if place != axis}
    if not isinstance(k, Elem) and axis not in x.counts:
        results = ops.top_k(whole(x), k, axis, greatest=greatest)
        return [counted(result, others) for result in results]
    bound = x.shape[axis] if isinstance(k, Elem) else min(k, x.shape[axis])
    filled = masked(x, ops.neutral("max" if greatest else "min", x.dtype), [axis])
    there = clamp(constant(k, "int64") if not isinstance(k, Elem) else k, 0, x.shape[axis])
    total = count(x, minimum(there, scalar(count_of(x, axis))))
    results = ops.top_k(filled, bound, axis, greatest=greatest)
    return [counted(result, {axis: total, **others}) for result in results]


def softmax(log: bool) -> Convert:
    def convert(node: Node) -> Value:
        x = node[0]
        if node.opset >= 13:
            return norms.softmax(x, [node.attribute("axis", -1) % x.rank], log=log)
        # Before opset 13 all dimensions from the axis on are one.
        axis = node.attribute("axis", 1)
        return norms.softmax(x, range(axis % x.rank if x.rank else 0, x.rank), log=log)

    return convert


def hardmax(node: Node) -> Value:
    x = node[0]
    axis = node.attribute("axis", -1 if node.opset >= 13 else 1) % x.rank
    axes = [axis] if node.opset >= 13 else range(axis, x.rank)
    flat = reshape(x, [*x.shape[:axis], prod(x.shape[axis:])]) if len(axes) > 1 else x
    top = ops.arg_extreme(flat, axis, greatest=True, last=False, keep=True)

    def body(*i: Elem) -> Elem:
        edge = [*i]
        edge[axis] = constant(0, "int64")
        return where(top[tuple(edge)].equals(i[axis]), constant(1, x.computed_in), 0)

    return reshape(node.builder.compute("hardmax", flat.shape, body, dtype=x.dtype), x.shape)


def layer_norm(node: Node) -> Results:
    x, epsilon = node[0], node.attribute("epsilon", 1e-5)
    axes = range(node.attribute("axis", -1) % x.rank, x.rank)
    result = norms.layer_norm(x, axes, node.optional(1), node.optional(2), epsilon)
    if len(node.outputs) == 1:
        return result
    mean = ops.mean(x, axes, keep=True)
    squares = elementwise("squares", lambda e, m: (e - m) * (e - m), x, mean)
    spread = ops.mean(squares, axes, keep=True)
    inverse = elementwise("inverse", lambda e: unary("rsqrt", e + epsilon), spread)
    return result, mean, inverse


def rms_norm(node: Node) -> Value:
    x = node[0]
    axes = range(node.attribute("axis", -1) % x.rank, x.rank)
    return norms.rms_norm(x, axes, node.optional(1), node.attribute("epsilon", 1e-5))


def instance_norm(node: Node) -> Value:
    return norms.group_norm(
        node[0], node[0].shape[1], node[1], node[2], node.attribute("epsilon", 1e-5)
    )


def group_norm(node: Node) -> Value:
    x, groups = node[0], node.attribute("num_groups", 1)
    epsilon = node.attribute("epsilon", 1e-5)
    if node[1].elements == x.shape[1]:
        return norms.group_norm(x, groups, node[1], node[2], epsilon)
    # Opset 18 has a scale and a bias a group.
    normal = norms.group_norm(x, groups, None, None, epsilon)
    shape = [x.shape[0], groups, -(-x.shape[1] // groups), *x.shape[2:]]
    spread = [reshape(node[place], [1, groups, *(1,) * (x.rank - 1)]) for place in (1, 2)]
    scaled = elementwise("scale", lambda e, g, b: e * g + b, reshape(normal, shape), *spread)
    return reshape(scaled, x.shape)


def batch_norm(node: Node) -> Value:
    if node.attribute("training_mode", 0) or len(node.outputs) > 1:
        raise node.refusal("trains; export the model for inference")
    x = node[0]
    return norms.batch_norm(x, node[1], node[2], node[3], node[4], node.attribute("epsilon", 1e-5))


def lp_norm(node: Node) -> Value:
    return norms.lp_normalize(
        node[0], node.attribute("axis", -1) % node[0].rank, node.attribute("p", 2)
    )


def local_response(node: Node) -> Value:
    return norms.local_response(
        node[0],
        size=node.attribute("size", 1),
        alpha=node.attribute("alpha", 1e-4),
        beta=node.attribute("beta", 0.75),
        bias=node.attribute("bias", 1.0),
    )


def _root(e: Elem) -> Elem:
    return unary("sqrt", e)


TABLE: Mapping[str, Convert] = {
    "ArgMax": arg_extreme(greatest=True),
    "ArgMin": arg_extreme(greatest=False),
    "BatchNormalization": batch_norm,
    "CumProd": cumulative("prod"),
    "CumSum": cumulative("sum"),
    "GroupNormalization": group_norm,
    "Hardmax": hardmax,
    "InstanceNormalization": instance_norm,
    "LRN": local_response,
    "LayerNormalization": layer_norm,
    "LogSoftmax": softmax(log=True),
    "LpNormalization": lp_norm,
    "RMSNormalization": rms_norm,
    "ReduceL1": reduced("sum", lambda e: unary("abs", e)),
    "ReduceL2": reduced("sum", lambda e: e * e, _root),
    "ReduceLogSum": reduced("sum", after=lambda e: unary("log", e)),
    "ReduceLogSumExp": log_sum_exp,
    "ReduceMax": reduced("max"),
    "ReduceMean": mean,
    "ReduceMin": reduced("min"),
    "ReduceProd": reduced("prod"),
    "ReduceSum": reduced("sum"),
    "ReduceSumSquare": reduced("sum", lambda e: e * e),
    "Softmax": softmax(log=False),
    "TopK": top_k,
}
