"""Dead-code elimination and bounds inference on boxes of points.

- An intermediate is computed only in the box in which it is read.
- A reduction runs over the box of terms that can change it. A dilated convolution's
  window on a small image may lie outside the tensor except for a corner.
- Where most points of a reduction read padding only, their common value is computed
  once, and the reduction runs for the other points.
- Where most terms along an axis are equal, they are computed once.

Boxes follow from the ranges of indices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd, prod

from tuner.spaces.program.tiles import add, constant
from tuner.spaces.rewrite.access import in_bounds_condition
from tuner.spaces.rewrite.constant_folding import fold_constant
from tuner.spaces.rewrite.stages import cost, fresh_name
from tuner.workload.affine import linear, value_range
from tuner.workload.expression import (
    Axis,
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expression,
    Read,
    Reducer,
    Scalar,
    Select,
    Stage,
    Unary,
    Var,
    reads,
    rewrite,
    substitute,
    walk,
)
from tuner.workload.scalar_operators import REDUCTIONS, identity

Span = tuple[int, int]  # of one axis or dimension, both ends included
Shapes = Mapping[str, tuple[int, ...]]

# A rewriting must save as many operations: a selection among hundreds of points and two
# more loops take about as long.
MIN_SAVED_OPERATIONS = 2048
# The operators that combine terms of idempotent reductions.
_IDEMPOTENT: Mapping[Reducer | None, BinaryOp] = {
    reducer: row.combine for reducer, row in REDUCTIONS.items() if row.is_idempotent
}


def without_dead_code(expression: Expression) -> Expression:
    """The expression without points and terms that do not affect its outputs.

    Each intermediate is cut to the box that is read, each reduction to the box of terms
    that can change it, and values that only depend on padding are computed once.
    Intermediates that are not read are dropped. Inputs and outputs keep their shapes.

    A term of a sum with a factor of zero counts as zero, even if another factor is
    infinite or NaN.
    """
    shapes = expression.shapes
    reserved = set(shapes)
    kept: list[Stage] = []  # readers before what they read, so that cut terms read nothing
    for stage in reversed(expression.stages):
        if stage.name not in expression.outputs:
            box = _read_box(stage, kept)
            if box is None:
                continue
            kept = [_reading_box(reader, stage.name, box) for reader in kept]
            stage = _restricted(
                stage, {axis.name: span for axis, span in zip(stage.axes, box, strict=True)}
            )
        parts = _split_at_border(_without_idle_terms(stage, shapes), shapes, reserved)
        reserved |= {part.name for part in parts}
        kept += [replace(part, body=_folded(part, shapes)) for part in parts]
    return replace(expression, stages=tuple(reversed(kept)))


def constant_border(stage: Stage, shapes: Shapes) -> tuple[tuple[Scalar, ...], Scalar] | None:
    """The border of a map that is one constant at most points.

    There a read lies outside its tensor. The result is the comparisons of axes that
    hold at all other points, and the constant. None for other stages.
    """
    for read in dict.fromkeys(reads(stage.body)) if stage.reducer is None else ():
        value = (
            _folded(replace(stage, body=_with_pad(stage.body, read)), shapes)
            if read.pad is not None
            else read
        )
        if any(isinstance(node, Var | Read) for node in walk(value)):
            continue
        ends = [
            _span_inside(replace(stage, body=read), axis, shapes[read.tensor]) or (0, -1)
            for axis in stage.axes
        ]
        seeing = prod(high - low + 1 for low, high in ends)
        if (
            2 * seeing > stage.points
            or cost(stage) * (stage.points - seeing) < MIN_SAVED_OPERATIONS * stage.points
        ):
            continue
        lows = [
            Binary("ge", Var(axis.name), constant(low))
            for axis, (low, _) in zip(stage.axes, ends, strict=True)
            if low > 0
        ]
        highs = [
            Binary("le", Var(axis.name), constant(high))
            for axis, (_, high) in zip(stage.axes, ends, strict=True)
            if high < axis.extent - 1
        ]
        return (*lows, *highs), value
    return None


def _read_box(stage: Stage, readers: Iterable[Stage]) -> list[Span] | None:
    """The box of a stage that its readers read, by dimension; None if they read nothing."""
    boxes = [
        spans
        for reader in readers
        for read in reads(reader.body)
        if read.tensor == stage.name
        and (spans := _spans_inside(read, stage.tensor.shape, reader.extents)) is not None
    ]
    ends = [zip(*spans, strict=True) for spans in zip(*boxes, strict=True)]
    return [(min(lows), max(highs)) for lows, highs in ends] or None


def _spans_inside(
    read: Read, shape: Sequence[int], extents: Mapping[str, int]
) -> list[Span] | None:
    """The box of its tensor that a read may touch, by dimension; None if it touches none."""
    spans = []
    for index, extent in zip(read.indices, shape, strict=True):
        values = value_range(index, extents)
        low, high = max(values.low, 0), min(values.high, extent - 1)
        form = linear(index)
        # Steps of more than one may leap over a small tensor.
        if form is not None and (step := gcd(*form.coefficients.values())):
            low, high = low + (form.constant - low) % step, high - (high - form.constant) % step
        if low > high:
            return None
        spans.append((low, high))
    return spans


def _reading_box(reader: Stage, tensor: str, box: Sequence[Span]) -> Stage:
    """The reader of a tensor after that was cut to a box.

    Padded reads outside the tensor are outside the box too.
    """

    def change(node: Scalar) -> Scalar | None:
        if not (isinstance(node, Read) and node.tensor == tensor):
            return None
        indices = (rewrite(index, change) for index in node.indices)
        return replace(
            node,
            indices=tuple(
                _shifted_index(index, -low) for index, (low, _) in zip(indices, box, strict=True)
            ),
        )

    return replace(reader, body=rewrite(reader.body, change))


def _shifted_index(index: Scalar, by: int) -> Scalar:
    moved = add(index, constant(by))
    form = linear(moved) if by else None
    return moved if form is None else form.index


def _restricted(stage: Stage, spans: Mapping[str, Span]) -> Stage:
    """The stage with some of its axes restricted to spans."""

    def shorter(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        ends = [spans.get(axis.name, (0, axis.extent - 1)) for axis in axes]
        return tuple(
            replace(axis, extent=high - low + 1)
            for axis, (low, high) in zip(axes, ends, strict=True)
        )

    moved = {name: add(Var(name), constant(low)) for name, (low, _) in spans.items() if low}
    return replace(
        stage,
        axes=shorter(stage.axes),
        reduce_axes=shorter(stage.reduce_axes),
        body=substitute(stage.body, moved),
    )


def _without_idle_terms(stage: Stage, shapes: Shapes) -> Stage:
    """The stage reduced only over terms that can change the result.

    Terms that are the identity of the reducer are cut off at both ends of each axis. So
    are constant terms of an idempotent reduction, which are then combined with each of
    the other terms.
    """
    same: Scalar | None = None  # the common value of the terms that are cut off
    changed = stage.reducer is not None
    # Ends, because every iteration removes terms. With fewer along one axis, more of
    # another's may lie outside.
    while changed:
        changed = False
        for axis in stage.reduce_axes:
            low, high = _live_span(stage, axis, shapes)
            if (low, high) != (0, axis.extent - 1):
                beyond = low - 1 if low else high + 1
                same, changed = (
                    _folded(_restricted(stage, {axis.name: (beyond, beyond)}), shapes),
                    True,
                )
                stage = _restricted(stage, {axis.name: (low, high)})
    for axis in stage.reduce_axes:
        stage = _repeated_terms_once(stage, axis, shapes)
    if same is None or stage.reducer not in _IDEMPOTENT:
        return stage
    return replace(stage, body=fold_constant(Binary(_IDEMPOTENT[stage.reducer], stage.body, same)))


def _repeated_terms_once(stage: Stage, axis: Axis, shapes: Shapes) -> Stage:
    """The stage reduced over the span of an axis in which terms differ.

    Outside that span all reads that depend on the axis are padding, so that the terms
    are equal. One of them, multiplied by their number in a sum, is combined with the
    others. Done if the span is at most half of the axis.
    """

    def moves(low: int, high: int) -> bool:
        return _depends_on(_folded(_restricted(stage, {axis.name: (low, high)}), shapes), axis)

    differing = _span_where(axis, moves)
    low, high = differing or (0, 0)
    stretch = high - low + 1
    kept = _restricted(stage, {axis.name: (low, high)})
    if stage.reducer == "prod" or 2 * stretch > axis.extent:
        return stage
    if differing is None:
        times = Binary(
            "mul", Cast(stage.accumulator, kept.body), Const(axis.extent, stage.accumulator)
        )
        return kept if stage.reducer in _IDEMPOTENT else replace(kept, body=times)
    if (
        stretch > 1
        and stage.reducer not in _IDEMPOTENT
        and cost(stage) - cost(kept) < MIN_SAVED_OPERATIONS
    ):
        return stage
    beyond = low - 1 if low else high + 1
    same = _folded(_restricted(stage, {axis.name: (beyond, beyond)}), shapes)
    if stage.reducer in _IDEMPOTENT:
        return replace(
            kept,
            body=fold_constant(Binary(_IDEMPOTENT[stage.reducer], _folded(kept, shapes), same)),
        )
    dtype = stage.accumulator
    others: Scalar = Binary("mul", Cast(dtype, same), Const(axis.extent - stretch, dtype))
    if stretch > 1:
        others = Select(Binary("eq", Var(axis.name), constant(0)), others, Const(0, dtype))
    return replace(kept, body=Binary("add", Cast(dtype, kept.body), others))


def _split_at_border(stage: Stage, shapes: Shapes, reserved: Collection[str]) -> list[Stage]:
    """The stage, split where most points of a reduction along an axis are equal.

    There a read lies outside its tensor. The stage then selects between a reduction of
    the other points and one of a single such point.
    """
    for axis, (low, high), read in _border_axes(stage, shapes):
        same = replace(stage, body=_with_pad(stage.body, read))
        if _depends_on(_folded(same, shapes), axis):
            continue
        inner = fresh_name(f"{stage.name}i", reserved)
        outer = fresh_name(f"{stage.name}o", reserved)
        halves = (
            _without_idle_terms(
                _restricted(replace(stage, name=inner), {axis.name: (low, high)}), shapes
            ),
            _without_idle_terms(
                _restricted(replace(same, name=outer), {axis.name: (0, 0)}), shapes
            ),
        )
        if cost(stage) - sum(map(cost, halves)) < max(
            MIN_SAVED_OPERATIONS, 2 * prod(stage.tensor.shape)
        ):
            continue
        place = {axis.name: Var(axis.name) for axis in stage.axes}
        here = tuple((place | {axis.name: add(Var(axis.name), constant(-low))}).values())
        beyond = tuple((place | {axis.name: constant(0)}).values())
        among = in_bounds_condition(here, halves[0].tensor.shape, stage.extents)
        assert among is not None  # because they are at most half of the axis
        body = Select(among, Read(inner, here), Read(outer, beyond))
        reserved = {*reserved, inner, outer}
        choice = Stage(name=stage.name, axes=stage.axes, body=body, dtype=stage.dtype)
        return [
            choice,
            *(part for half in halves for part in _split_at_border(half, shapes, reserved)),
        ]
    return [stage]


def _depends_on(body: Scalar, axis: Axis) -> bool:
    return any(isinstance(node, Var) and node.name == axis.name for node in walk(body))


def _with_pad(body: Scalar, read: Read) -> Scalar:
    return rewrite(body, lambda node: read.pad if node == read else None)


def _border_axes(stage: Stage, shapes: Shapes) -> Iterator[tuple[Axis, Span, Read]]:
    """Axes of a reduction along at most half of which a read can be inside its tensor."""
    for axis in stage.axes if stage.reducer is not None else ():
        for read in dict.fromkeys(reads(stage.body)):
            span = (
                _span_inside(replace(stage, body=read), axis, shapes[read.tensor])
                if read.pad is not None
                else None
            )
            if span is not None and 2 * (span[1] - span[0] + 1) <= axis.extent:
                yield axis, span, read


def _span_inside(stage: Stage, axis: Axis, shape: Sequence[int]) -> Span | None:
    """Span of an axis in which the read that is the stage's body can be inside its tensor."""

    def inside(low: int, high: int) -> bool:
        part = _restricted(stage, {axis.name: (low, high)})
        assert isinstance(part.body, Read)
        return _spans_inside(part.body, shape, part.extents) is not None

    return _span_where(axis, inside)


def _live_span(stage: Stage, axis: Axis, shapes: Shapes) -> Span:
    """Span of a reduced axis in which terms can change the result.

    Only its first position where none can.
    """
    return _span_where(
        axis, lambda low, high: not _is_idle(_restricted(stage, {axis.name: (low, high)}), shapes)
    ) or (0, 0)


def _span_where(axis: Axis, counts: Callable[[int, int], bool]) -> Span | None:
    """The first and last position of an axis for which `counts` holds, found by bisection.

    `counts(low, high)` says whether it may hold somewhere in that span.
    """

    def found(low: int, high: int, *, last: bool) -> int | None:
        if not counts(low, high):
            return None
        if low == high:
            return low
        middle = (low + high) // 2
        halves = [(low, middle), (middle + 1, high)]
        places = (found(*half, last=last) for half in (reversed(halves) if last else halves))
        # `counts` may be more precise for a half than for the whole.
        return next((place for place in places if place is not None), None)

    first, last = (found(0, axis.extent - 1, last=last) for last in (False, True))
    return None if first is None or last is None else (first, last)


def _is_idle(stage: Stage, shapes: Shapes) -> bool:
    """Whether the terms of a reduction are one constant that may be left out.

    That is the identity of the reducer, or any constant if the reducer is idempotent.
    """
    assert stage.reducer is not None
    term = _folded(stage, shapes)
    if stage.reducer in _IDEMPOTENT:
        return not any(isinstance(node, Var | Read) for node in walk(term))
    return (
        isinstance(term, Const) and term.value == identity(stage.reducer, stage.accumulator).value
    )


def _folded(stage: Stage, shapes: Shapes) -> Scalar:
    """The body with constants folded.

    Reads that are always outside their tensor are replaced by their padding, and
    products with zero in a sum by zero.
    """
    extents = stage.extents

    def fold(node: Scalar) -> Scalar:
        match rewrite(node, lambda child: None if child is node else fold(child)):
            case Read(tensor=tensor, pad=Const() as pad) as read if (
                _spans_inside(read, shapes[tensor], extents) is None
            ):
                return pad
            case (
                Binary(op="mul", lhs=Const(value=0) as zero)
                | Binary(op="mul", rhs=Const(value=0) as zero)
            ) if stage.reducer == "sum":
                return zero
            case Unary(op="neg", arg=Const(value=0) as zero):
                return zero
            case Cast(dtype=dtype, arg=Const(value=0)):
                return Const(0, dtype)  # of any dtype
            case folded:
                return fold_constant(folded)

    return fold(stage.body)
