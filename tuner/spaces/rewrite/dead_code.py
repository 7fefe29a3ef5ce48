"""What nobody reads is not computed, nor are terms that change nothing: boxes of points
that count, found by their indices' ends.

Of a tensor read in part only that part is made. A window that lies outside of its
tensor but for a corner, as a dilated convolution's does on a small image, is reduced
over that corner. Where most points of a reduction see nothing but padding and are all
the same, it is done for the others and once for these; so are terms of which most are
the same along an axis.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd, prod

from tuner.spaces.program.tiles import add, constant
from tuner.spaces.rewrite.access import bounds, in_bounds, linear
from tuner.spaces.rewrite.constant_folding import evaluated
from tuner.spaces.rewrite.groups import shapes_of
from tuner.spaces.rewrite.predicates import identity
from tuner.spaces.rewrite.stages import cost, unused
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

Span = tuple[int, int]  # of one axis or dimension, both ends included
Shapes = Mapping[str, tuple[int, ...]]

# operations: as many take about as long as a choice among hundreds of points and two
# more loops
SPARED = 2048
_IDEMPOTENT: Mapping[Reducer | None, BinaryOp] = {"max": "max", "min": "min"}


def trimmed(expression: Expression) -> Expression:
    """The expression with each intermediate cut to the box that is read of it, each
    reduction to the box of terms that count, and of a reduction's points that are the
    same for seeing padding alone one computed.

    In a sum a factor of zero is taken to make a term zero, so that an infinity it would
    meet makes no NaN. Inputs and outputs keep their shapes; an intermediate of which
    nothing is read is left out.
    """
    shapes = shapes_of(expression)
    taken = set(shapes)
    kept: list[Stage] = []  # readers before what they read: what a reduction leaves out is not read
    for stage in reversed(expression.stages):
        if stage.name not in expression.outputs:
            box = _read_box(stage, kept)
            if box is None:
                continue
            kept = [_shifted(reader, stage.name, box) for reader in kept]
            stage = _cut(
                stage, {axis.name: span for axis, span in zip(stage.axes, box, strict=True)}
            )
        parts = _parts(_counting(stage, shapes), shapes, taken)
        taken |= {part.name for part in parts}
        kept += [replace(part, body=_folded(part, shapes)) for part in parts]
    return replace(expression, stages=tuple(reversed(kept)))


def outside(stage: Stage, shapes: Shapes) -> tuple[tuple[Scalar, ...], Scalar] | None:
    """Of a map that is one constant at most of its points, because a read is outside of
    its tensor there: comparisons of its axes that hold at all others, and the constant.
    None of other stages."""
    for read in dict.fromkeys(reads(stage.body)) if stage.reducer is None else ():
        value = (
            _folded(replace(stage, body=_with_pad(stage.body, read)), shapes)
            if read.pad is not None
            else read
        )
        if any(isinstance(node, Var | Read) for node in walk(value)):
            continue
        ends = [
            _reach(replace(stage, body=read), axis, shapes[read.tensor]) or (0, -1)
            for axis in stage.axes
        ]
        seeing = prod(high - low + 1 for low, high in ends)
        if (
            2 * seeing > stage.points
            or cost(stage) * (stage.points - seeing) < SPARED * stage.points
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
    """What is read of a stage, by dimension; None for nothing."""
    found = [
        spans
        for reader in readers
        for read in reads(reader.body)
        if read.tensor == stage.name
        and (spans := _inside(read, stage.tensor.shape, reader.extents)) is not None
    ]
    ends = [zip(*spans, strict=True) for spans in zip(*found, strict=True)]
    return [(min(lows), max(highs)) for lows, highs in ends] or None


def _inside(read: Read, shape: Sequence[int], extents: Mapping[str, int]) -> list[Span] | None:
    """Where in its tensor a read can be, by dimension; None where it never is."""
    spans = []
    for index, extent in zip(read.indices, shape, strict=True):
        low, high = bounds(index, extents) or (0, extent - 1)
        low, high = max(low, 0), min(high, extent - 1)
        form = linear(index)
        if form is not None and (
            step := gcd(*form.coefficients.values())
        ):  # in steps, which may leap over a tensor
            low, high = low + (form.constant - low) % step, high - (high - form.constant) % step
        if low > high:
            return None
        spans.append((low, high))
    return spans


def _shifted(reader: Stage, tensor: str, box: Sequence[Span]) -> Stage:
    """The reader of a tensor of which a box is left. What is outside of the tensor is
    outside of the box."""

    def change(node: Scalar) -> Scalar | None:
        if not (isinstance(node, Read) and node.tensor == tensor):
            return None
        indices = (rewrite(index, change) for index in node.indices)
        return replace(
            node,
            indices=tuple(
                _moved(index, -low) for index, (low, _) in zip(indices, box, strict=True)
            ),
        )

    return replace(reader, body=rewrite(reader.body, change))


def _moved(index: Scalar, by: int) -> Scalar:
    moved = add(index, constant(by))
    form = linear(moved) if by else None
    return moved if form is None else form.index


def _cut(stage: Stage, spans: Mapping[str, Span]) -> Stage:
    """The stage with some of its axes running over spans of what they did."""

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


def _counting(stage: Stage, shapes: Shapes) -> Stage:
    """The stage reduced over the terms that count: a constant that the reducer makes
    nothing of is left out, one of which many are as good as one is taken into each of
    the others."""
    same: Scalar | None = (
        None  # what each term is that is left out: all that may differ has left its tensor there
    )
    changed = stage.reducer is not None
    # ends: every turn leaves fewer terms; with fewer along one axis, more of another's
    # may lie outside
    while changed:
        changed = False
        for axis in stage.reduce_axes:
            low, high = _span(stage, axis, shapes)
            if (low, high) != (0, axis.extent - 1):
                beyond = low - 1 if low else high + 1
                same, changed = _folded(_cut(stage, {axis.name: (beyond, beyond)}), shapes), True
                stage = _cut(stage, {axis.name: (low, high)})
    for axis in stage.reduce_axes:
        stage = _once(stage, axis, shapes)
    if same is None or stage.reducer not in _IDEMPOTENT:
        return stage
    return replace(stage, body=evaluated(Binary(_IDEMPOTENT[stage.reducer], stage.body, same)))


def _once(stage: Stage, axis: Axis, shapes: Shapes) -> Stage:
    """The stage reduced over the stretch of an axis whose terms differ, if that is half
    of it at most. The others are the same as each other: all that moves along the axis
    has left its tensor there. One of them, for a sum as many times as they are, is
    taken in with those that stay."""

    def moves(low: int, high: int) -> bool:
        return _moves(_folded(_cut(stage, {axis.name: (low, high)}), shapes), axis)

    found = _places(axis, moves)
    low, high = found or (0, 0)
    stretch = high - low + 1
    kept = _cut(stage, {axis.name: (low, high)})
    if stage.reducer == "prod" or 2 * stretch > axis.extent:
        return stage
    if found is None:
        times = Binary(
            "mul", Cast(stage.accumulator, kept.body), Const(axis.extent, stage.accumulator)
        )
        return kept if stage.reducer in _IDEMPOTENT else replace(kept, body=times)
    if stretch > 1 and stage.reducer not in _IDEMPOTENT and cost(stage) - cost(kept) < SPARED:
        return stage
    beyond = low - 1 if low else high + 1
    same = _folded(_cut(stage, {axis.name: (beyond, beyond)}), shapes)
    if stage.reducer in _IDEMPOTENT:
        return replace(
            kept, body=evaluated(Binary(_IDEMPOTENT[stage.reducer], _folded(kept, shapes), same))
        )
    dtype = stage.accumulator
    others: Scalar = Binary("mul", Cast(dtype, same), Const(axis.extent - stretch, dtype))
    if stretch > 1:
        others = Select(Binary("eq", Var(axis.name), constant(0)), others, Const(0, dtype))
    return replace(kept, body=Binary("add", Cast(dtype, kept.body), others))


def _parts(stage: Stage, shapes: Shapes, taken: Collection[str]) -> list[Stage]:
    """The stage, or where most points of a reduced one along an axis are the same,
    because a read is outside of its tensor there: a choice between two, one of the
    others and one of a single such point."""
    for axis, (low, high), read in _bordered(stage, shapes):
        same = replace(stage, body=_with_pad(stage.body, read))
        if _moves(_folded(same, shapes), axis):
            continue
        inner = unused(f"{stage.name}i", taken)
        outer = unused(f"{stage.name}o", taken)
        halves = (
            _counting(_cut(replace(stage, name=inner), {axis.name: (low, high)}), shapes),
            _counting(_cut(replace(same, name=outer), {axis.name: (0, 0)}), shapes),
        )
        if cost(stage) - sum(map(cost, halves)) < max(SPARED, 2 * prod(stage.tensor.shape)):
            continue
        place = {one.name: Var(one.name) for one in stage.axes}
        here = tuple((place | {axis.name: add(Var(axis.name), constant(-low))}).values())
        beyond = tuple((place | {axis.name: constant(0)}).values())
        among = in_bounds(here, halves[0].tensor.shape, stage.extents)
        assert among is not None  # they are half of the axis at most
        body = Select(among, Read(inner, here), Read(outer, beyond))
        taken = {*taken, inner, outer}
        choice = Stage(name=stage.name, axes=stage.axes, body=body, dtype=stage.dtype)
        return [choice, *(part for half in halves for part in _parts(half, shapes, taken))]
    return [stage]


def _moves(body: Scalar, axis: Axis) -> bool:
    return any(isinstance(node, Var) and node.name == axis.name for node in walk(body))


def _with_pad(body: Scalar, read: Read) -> Scalar:
    return rewrite(body, lambda node: read.pad if node == read else None)


def _bordered(stage: Stage, shapes: Shapes) -> Iterator[tuple[Axis, Span, Read]]:
    """Axes of a reduced stage along at most half of which a read can be inside of its tensor."""
    for axis in stage.axes if stage.reducer is not None else ():
        for read in dict.fromkeys(reads(stage.body)):
            span = (
                _reach(replace(stage, body=read), axis, shapes[read.tensor])
                if read.pad is not None
                else None
            )
            if span is not None and 2 * (span[1] - span[0] + 1) <= axis.extent:
                yield axis, span, read


def _reach(stage: Stage, axis: Axis, shape: Sequence[int]) -> Span | None:
    """Where along an axis the read that is the stage's body can be inside of its tensor."""

    def inside(low: int, high: int) -> bool:
        part = _cut(stage, {axis.name: (low, high)})
        assert isinstance(part.body, Read)
        return _inside(part.body, shape, part.extents) is not None

    return _places(axis, inside)


def _span(stage: Stage, axis: Axis, shapes: Shapes) -> Span:
    """Where along a reduced axis terms count, whatever the other iterators are; its
    first place where none does."""
    return _places(
        axis, lambda low, high: not _is_idle(_cut(stage, {axis.name: (low, high)}), shapes)
    ) or (0, 0)


def _places(axis: Axis, counts: Callable[[int, int], bool]) -> Span | None:
    """The first and last place of an axis that count; of more places than one `counts`
    says whether some of them may."""

    def found(low: int, high: int, *, last: bool) -> int | None:
        if not counts(low, high):
            return None
        if low == high:
            return low
        middle = (low + high) // 2
        halves = [(low, middle), (middle + 1, high)]
        places = (found(*half, last=last) for half in (reversed(halves) if last else halves))
        return next(
            (place for place in places if place is not None), None
        )  # halves may tell more than the whole

    first, last = (found(0, axis.extent - 1, last=last) for last in (False, True))
    return None if first is None or last is None else (first, last)


def _is_idle(stage: Stage, shapes: Shapes) -> bool:
    """Whether the terms of a reduction are one constant, of which the reducer makes
    nothing, or the same of many as of one."""
    assert stage.reducer is not None
    term = _folded(stage, shapes)
    if stage.reducer in _IDEMPOTENT:
        return not any(isinstance(node, Var | Read) for node in walk(term))
    return (
        isinstance(term, Const) and term.value == identity(stage.reducer, stage.accumulator).value
    )


def _folded(stage: Stage, shapes: Shapes) -> Scalar:
    """The body with reads that are always outside replaced by what they are there, what
    is constant evaluated, and in a sum products with zero replaced by zero."""
    extents = stage.extents

    def fold(node: Scalar) -> Scalar:
        match rewrite(node, lambda found: None if found is node else fold(found)):
            case Read(tensor=tensor, pad=Const() as pad) as read if (
                _inside(read, shapes[tensor], extents) is None
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
                return evaluated(folded)

    return fold(stage.body)
