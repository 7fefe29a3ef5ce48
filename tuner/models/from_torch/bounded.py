"""Calls of ATen operators on tensors whose extents are computed at run time, up to a bound.

The traced shapes say which dimensions of a result have counts. A rule gives what lies behind
the counts of the arguments a meaning where the operator would read it; the operator itself is
converted as if all extents were at their bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from tuner.models.errors import ModelRefused
from tuner.models.from_torch import elementwise, table
from tuner.models.from_torch.call import Call, Convert, Results
from tuner.models.operators import elementwise as maps
from tuner.models.operators import movement, reduction, selection
from tuner.models.operators.extents import (
    count,
    counted,
    joined,
    masked,
    same_count,
    scalar,
    slice_of,
    whole,
)
from tuner.models.operators.extents import mean as mean_of
from tuner.models.operators.scalars import Number, where
from tuner.models.operators.values import Value
from tuner.workload.expression import Reducer

Rule = Callable[[Call, Convert], Results]
Neutral = Callable[[Call, Value], Number | None]


def converted(call: Call, convert: Convert) -> Results:
    """The results of an operator that `convert` has for extents known at import.

    Raises ModelRefused for an operator that does not take others.
    """
    is_late = call.late or call.counts or _has_counts([*call.arguments.values()])
    if not is_late and call.op not in MAKERS:
        return convert(call)  # the extents that the trace has symbols for are known by now
    rule = RULES.get(call.op)
    if rule is None or call.late - _SHAPES.get(call.op, frozenset()):
        raise refusal(call)
    return rule(call, convert)


def _has_counts(argument: Any) -> bool:
    if isinstance(argument, list):
        return any(map(_has_counts, argument))
    return isinstance(argument, Value) and bool(argument.counts)


def refusal(call: Call) -> ModelRefused:
    return call.refusal(
        "takes no extent that is computed at run time here, as one of its arguments has; write "
        "the model as an ONNX file (torch.onnx.export), where more operators take them, or "
        "select a fixed number, as torch.topk does"
    )


def plain(call: Call, convert: Convert) -> Results:
    """The results up to the bounds."""
    return convert(replace(call, arguments=_whole(call.arguments)))


def _whole(argument: Any) -> Any:
    if isinstance(argument, Value):
        return whole(argument)
    if isinstance(argument, Mapping):
        return {name: _whole(part) for name, part in argument.items()}
    return [_whole(part) for part in argument] if isinstance(argument, list) else argument


def _with(call: Call, **arguments: Any) -> Call:
    return replace(call, arguments={**call.arguments, **arguments})


def _axes(call: Call, rank: int) -> Sequence[int]:
    given = call.get("dim")
    return reduction.normalized([given] if isinstance(given, int) else given, rank)


def known(axes: str = "dim", default: int | None = None) -> Rule:
    """An operator that mixes elements of `self` along some dimensions, whose extents must be
    known."""

    def rule(call: Call, convert: Convert) -> Results:
        x, given = call.value("self"), call.get(axes, default)
        places = reduction.normalized([given] if isinstance(given, int) else given, x.rank)
        if any(axis in x.counts for axis in places):
            raise refusal(call)
        return plain(call, convert)

    return rule


def rows(call: Call, convert: Convert) -> Results:
    """Each entry of the first dimension, the batch, by itself."""
    if {*call.value("input").counts} - {0}:
        raise refusal(call)
    return plain(call, convert)


# --- selection


def nonzero(call: Call) -> Value:
    """The indices of the elements that are not 0, a row each."""
    x = masked(call.value("self"), 0)
    if not x.rank:
        raise call.refusal("takes tensors of at least one dimension")
    columns = selection.nonzero(x)
    counts = {1 - axis: number for axis, number in columns.counts.items()}
    return counted(movement.transpose(whole(columns), [1, 0]), counts)


def index(call: Call, convert: Convert) -> Results:
    """By a mask, or by integers, of which negative ones count from the end that is there."""
    x, tensors = call.value("self"), list(call["indices"])
    given = [axis for axis, tensor in enumerate(tensors) if tensor is not None]
    if any(tensors[axis].dtype == "bool" for axis in given):
        if len(given) > 1:
            raise call.refusal("selects by a mask and by other indices")
        return _chosen(x, tensors[given[0]], given[0])
    for axis in given:
        if axis in x.counts:
            tensors[axis] = _from_the_end(tensors[axis], x.counts[axis])
    return plain(_with(call, indices=tensors), convert)


def masked_select(call: Call) -> Value:
    """The elements where a mask is true, which is broadcast with them."""
    x, mask = call.value("self"), call.value("mask")
    shape = movement.broadcast_shape(x.shape, mask.shape)
    if shape != mask.shape and mask.counts:
        raise refusal(call)
    spread = movement.expand(masked(mask, False), shape)
    return _chosen(movement.expand(whole(x), shape), spread, 0)


def index_put(call: Call, convert: Convert) -> Results:
    """Values by a mask, as many as it has; or of places that are counted those that are there."""
    x, values = call.value("self"), call.value("values")
    tensors = [tensor for tensor in call["indices"] if tensor is not None]
    late = [tensor for tensor in tensors if tensor.counts]
    longest = max(tensor.rank for tensor in tensors)
    numbers = [tensor.counts.get(0) for tensor in late]
    if tensors[0].dtype == "bool":
        own = {call["indices"].index(tensors[0]) + values.rank - x.rank + longest - 1}
        is_taken = not late and {*values.counts} <= own
    else:
        own = {0} if call["indices"][0] is not None else set()
        is_whole = values.rank == longest + x.rank - len(tensors)
        numbers += [values.counts.get(0)] if values.counts else []
        is_taken = (
            all(tensor.rank == longest and {*tensor.counts} == {0} for tensor in late)
            and {*values.counts} <= (own if is_whole else set())
            and all(_same(numbers[0], number) for number in numbers)
            and (bool(late) or not values.counts)
        )
    if x.counts or not is_taken:
        raise refusal(call)
    return convert(call)


def masked_scatter(call: Call, convert: Convert) -> Results:
    """As many elements as are there of the source, whose other extents must be known."""
    if (
        call.value("self").counts
        or call.value("mask").counts
        or {*call.value("source").counts} - {0}
    ):
        raise refusal(call)
    return plain(call, convert)


def _from_the_end(indices: Value, number: Value) -> Value:
    plain_indices = maps.cast(whole(indices), "int64")
    return maps.elementwise("places", lambda e: where(e < 0, e + scalar(number), e), plain_indices)


def _chosen(x: Value, mask: Value, axis: int) -> Value:
    """The slices along the dimensions of a mask, from `axis` on, where it is true."""
    flags = movement.reshape(masked(mask, False), [mask.elements])
    shape = [*x.shape[:axis], mask.elements, *x.shape[axis + mask.rank :]]
    return selection.compress(movement.reshape(whole(x), shape), flags, axis)


def number_range(call: Call) -> Value:
    """Whole numbers from a start known at import."""
    numbers = np.arange(call["start"], call["end"], call.get("step", 1))
    return call.builder.constant(numbers, call.dtype)


# --- movement


def view(call: Call, convert: Convert) -> Results:
    """A dimension with a count stays alone, or in front of those that are joined or divided."""
    x = call.value("self")
    shape = call.shape if call.shapes else _completed(call, x)
    counts = dict(call.counts)
    for old, new in movement.groups(x.shape, shape):
        number = x.counts.get(old[0])
        if {*old[1:]} & x.counts.keys() or {*new[1:]} & counts.keys():
            raise refusal(call)
        if number is None and new[0] in counts:
            raise refusal(call)
        if number is not None and new[0] not in counts:
            behind = prod(x.shape[axis] for axis in old[1:])
            inside = prod(shape[axis] for axis in new[1:])
            counts[new[0]] = count(x, scalar(number) * behind // inside)
    return counted(movement.reshape(whole(x), shape), counts)


def _completed(call: Call, x: Value) -> list[int]:
    """The shape that a view asks for, of which one extent comes up with the result."""
    sizes = [-1 if size is None else size for size in call["size"]]
    if sizes.count(-1) != 1:
        raise refusal(call)
    sizes[sizes.index(-1)] = x.elements // max(-prod(sizes), 1)
    return sizes


def _same(left: Value | None, right: Value | None) -> bool:
    if left is None or right is None:
        return left is right
    return same_count(left, right)


def take_slice(call: Call, convert: Convert) -> Results:
    """Of a dimension with a count all that is there, or what numbers known at import say."""
    x = call.value("self")
    axis, start, step = call.get("dim", 0) % x.rank, call.get("start") or 0, call.get("step", 1)
    if axis not in x.counts:
        return plain(call, convert)
    if start == 0 and step == 1 and _same(x.counts[axis], call.counts.get(axis)):
        return whole(x)
    if call.late:
        raise refusal(call)
    end = call.get("end")
    return slice_of(x, axis, start, x.shape[axis] if end is None else end, step)


def select(call: Call, convert: Convert) -> Results:
    """One of those that are there, counted from the front."""
    x = call.value("self")
    if call["dim"] % x.rank in x.counts and call["index"] < 0:
        raise refusal(call)
    return plain(call, convert)


def slice_scatter(call: Call, convert: Convert) -> Results:
    """Of a dimension with a count all is replaced."""
    x, updates = call.value("self"), call.value("src")
    axis = call.get("dim", 0) % x.rank
    if axis in x.counts:
        is_all = not call.get("start") and call.get("step", 1) == 1
        if not (is_all and _same(x.counts[axis], updates.counts.get(axis))):
            raise refusal(call)
        return maps.cast(whole(updates), call.dtype)
    return plain(call, convert)


def cat(call: Call, convert: Convert) -> Results:
    """What is there of each, one after the other."""
    values: list[Value] = [value for value in call["tensors"] if value.elements]
    axis = call.get("dim", 0) % values[0].rank
    if not any(axis in value.counts for value in values):
        return plain(call, convert)
    parts = [
        counted(
            whole(maps.cast(whole(value), call.dtype)),
            {axis: value.counts[axis]} if axis in value.counts else {},
        )
        for value in values
    ]
    return joined(parts, axis)


def repeat(call: Call, convert: Convert) -> Results:
    x, times = call.value("self"), call["repeats"]
    if any(times[axis - x.rank + len(times)] != 1 for axis in x.counts):
        raise refusal(call)
    return plain(call, convert)


def padded(call: Call, convert: Convert) -> Results:
    x, widths = call.value("self"), call["pad"]
    wide = {x.rank - 1 - place // 2 for place, width in enumerate(widths) if width}
    if wide & x.counts.keys():
        raise refusal(call)
    return plain(call, convert)


# --- reductions and products


def over(neutral: Neutral) -> Rule:
    """A reduction along `dim`: what lies behind counts is made neutral."""

    def rule(call: Call, convert: Convert) -> Results:
        x = call.value("self")
        late = [axis for axis in _axes(call, x.rank) if axis in x.counts]
        number = neutral(call, x)
        if late and number is None:
            raise refusal(call)
        filled = masked(x, number, late) if late and number is not None else x
        return plain(_with(call, self=filled), convert)

    return rule


def by(reducer: Reducer) -> Neutral:
    return lambda _, x: reduction.neutral(reducer, x.dtype)


def of_norm(call: Call, _: Value) -> Number | None:
    return 0 if float(call.get("ord", 2)) > 0 else None


def first_place(reducer: Reducer) -> Rule:
    """The place of an extreme; of all elements together only where places do not move."""

    def rule(call: Call, convert: Convert) -> Results:
        if call.get("dim") is None and {*call.value("self").counts} - {0}:
            raise refusal(call)
        return over(by(reducer))(call, convert)

    return rule


def mean(call: Call, convert: Convert) -> Results:
    """Over the number of elements that are there."""
    x = call.value("self")
    axes = _axes(call, x.rank)
    if not {*axes} & x.counts.keys():
        return plain(call, convert)
    counts, x = x.counts, call.value("self", call.dtype)
    return mean_of(replace(x, counts=counts), axes, keep=bool(call.get("keepdim")))


def product(left: str, right: str) -> Rule:
    """Of matrices; what lies behind the count of the dimension that is summed is made zero."""

    def rule(call: Call, convert: Convert) -> Results:
        a, b = call.value(left), call.value(right)
        inner = a.counts.get(a.rank - 1), b.counts.get(b.rank - 2)
        if not _same(*inner):
            raise refusal(call)
        if inner[0] is not None:
            a, b = masked(a, 0, [a.rank - 1]), masked(b, 0, [b.rank - 2])
        return plain(_with(call, **{left: a, right: b}), convert)

    return rule


def normalized(call: Call, convert: Convert) -> Results:
    """Along the last dimensions, whose extents must be known."""
    x = call.value("input")
    if any(axis >= x.rank - len(call["normalized_shape"]) for axis in x.counts):
        raise refusal(call)
    return plain(call, convert)


def without(name: str) -> Rule:
    """An argument of which all extents must be known."""

    def rule(call: Call, convert: Convert) -> Results:
        if call.value(name).counts:
            raise refusal(call)
        return plain(call, convert)

    return rule


TABLE: Mapping[str, Convert] = {
    "aten.arange.start_step": number_range,
    "aten.masked_select.default": masked_select,
    "aten.nonzero.default": nonzero,
}

# Operators that compute each element from those at its place.
_ELEMENTWISE = [
    op for op, convert in table.TABLE.items() if convert.__module__ == elementwise.__name__
]
_SHAPES: Mapping[str, frozenset[str]] = {
    "aten.arange.start_step": frozenset({"end"}),
    "aten.expand.default": frozenset({"size"}),
    "aten.full.default": frozenset({"size"}),
    "aten.slice.Tensor": frozenset({"end"}),
    "aten.slice_scatter.default": frozenset({"end"}),
    "aten.view.default": frozenset({"size"}),
}
"""Arguments in which extents of run time may stand."""
MAKERS = (
    "aten.cat.default", "aten.index.Tensor", "aten.masked_select.default",
    "aten.nonzero.default", "aten.slice.Tensor", "aten.view.default",
)  # fmt: skip
"""Operators whose results may have extents of their own, which are read without them."""
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE, plain),
    "aten._log_softmax.default": over(lambda *_: -math.inf),
    "aten._native_batch_norm_legit_no_training.default": rows,
    "aten._softmax.default": over(lambda *_: -math.inf),
    "aten.addmm.default": product("mat1", "mat2"),
    "aten.all.default": over(lambda *_: 1),
    "aten.all.dim": over(lambda *_: 1),
    "aten.amax.default": over(by("max")),
    "aten.amin.default": over(by("min")),
    "aten.any.default": over(lambda *_: 0),
    "aten.any.dim": over(lambda *_: 0),
    "aten.arange.start_step": plain,
    "aten.argmax.default": first_place("max"),
    "aten.argmin.default": first_place("min"),
    "aten.bmm.default": product("self", "mat2"),
    "aten.cat.default": cat,
    "aten.constant_pad_nd.default": padded,
    "aten.convolution.default": rows,
    "aten.copy.default": plain,
    "aten.cumsum.default": plain,
    "aten.embedding.default": without("weight"),
    "aten.expand.default": plain,
    "aten.fill.Scalar": plain,
    "aten.flip.default": known("dims"),
    "aten.full.default": plain,
    "aten.full_like.default": plain,
    "aten.gather.default": known(),
    "aten.grid_sampler_2d.default": without("input"),
    "aten.index.Tensor": index,
    "aten.index_put.default": index_put,
    "aten.index_select.default": known(),
    "aten.linalg_vector_norm.default": over(of_norm),
    "aten.masked_scatter.default": masked_scatter,
    "aten.masked_select.default": lambda call, convert: convert(call),
    "aten.max.default": over(by("max")),
    "aten.max.dim": over(by("max")),
    "aten.mean.default": mean,
    "aten.mean.dim": mean,
    "aten.min.default": over(by("min")),
    "aten.min.dim": over(by("min")),
    "aten.mm.default": product("self", "mat2"),
    "aten.native_group_norm.default": rows,
    "aten.native_layer_norm.default": normalized,
    "aten.nonzero.default": lambda call, convert: convert(call),
    "aten.permute.default": plain,
    "aten.prod.default": over(by("prod")),
    "aten.prod.dim_int": over(by("prod")),
    "aten.repeat.default": repeat,
    "aten.roll.default": known("dims"),
    "aten.select.int": select,
    "aten.select_scatter.default": known(),
    "aten.slice.Tensor": take_slice,
    "aten.slice_scatter.default": slice_scatter,
    "aten.sort.default": known(default=-1),
    "aten.split_with_sizes.default": known(default=0),
    "aten.squeeze.dims": view,
    "aten.sum.default": over(by("sum")),
    "aten.sum.dim_IntList": over(by("sum")),
    "aten.topk.default": known(default=-1),
    "aten.unsqueeze.default": view,
    "aten.view.default": view,
}
