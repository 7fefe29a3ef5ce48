"""Sums whose terms count only where an index divides evenly, as of a transposed
convolution: without the terms that do not.

A transposed convolution of stride s is, for every s-th output and so for each of s
phases, a convolution with every s-th weight (Dumoulin & Visin, "A guide to convolution
arithmetic for deep learning" (2016), chapter 4, says which zeros the other weights
meet). An axis that the rule speaks of becomes two, its phase the inner one; the sum
along the window goes over the weights of a phase. What is left out are products with
zero, so that an infinite weight no longer makes them NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from math import gcd

from tuner.spaces.program.tiles import add, constant
from tuner.spaces.rewrite.access import Linear, bounds, in_bounds, linear
from tuner.spaces.rewrite.predicates import conjuncts, identity
from tuner.spaces.rewrite.stages import inlined, is_elementwise, unused
from tuner.workload.expression import (
    Axis,
    Binary,
    Cast,
    Const,
    Expression,
    Read,
    Scalar,
    Select,
    Stage,
    Tensor,
    Var,
    reads,
    rewrite,
    walk,
)

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Term:
    """A product that counts only under conditions, and is zero where one of them fails."""

    factors: tuple[Scalar, ...]
    conditions: tuple[Scalar, ...] = ()
    zero: Const | None = None  # where there are conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class _Phase:
    """An output axis y and a window's axis r of a sum that counts only where a*y + b*r
    + c is a multiple of the stride s.

    With y = s*block + phase - shift, r is s*step + first + slope*phase.
    """

    rule: Scalar  # the condition
    axis: Axis
    window: Axis
    stride: int
    shift: int  # outputs before the first, in a block with it
    first: int  # weight of the first phase
    slope: int

    @property
    def blocks(self) -> int:
        return -(-(self.axis.extent + self.shift) // self.stride)

    @property
    def steps(self) -> int:
        return -(-self.window.extent // self.stride)

    @property
    def exact(self) -> bool:
        """Whether blocks are the axis, and nothing beside it."""
        return self.shift == 0 and self.axis.extent == self.blocks * self.stride

    @property
    def saves(self) -> bool:
        return self.blocks * self.stride * self.steps < self.axis.extent * self.window.extent

    @property
    def place(self) -> tuple[Scalar, Scalar]:
        """Block and phase of an output."""
        at = add(Var(self.axis.name), constant(self.shift))
        return Binary("floordiv", at, constant(self.stride)), Binary(
            "floormod", at, constant(self.stride)
        )


def phased(expression: Expression) -> Expression:
    """The expression, elementwise stages inlined, without such terms; the same where
    there are none.

    Outputs keep their names and their elements' order, but may have more dimensions.
    """
    for stage in expression.stages:
        term = _term(stage.body)
        phases = _phases(stage, term) if stage.reducer == "sum" else ()
        if not phases or any(
            expression.tensor(read.tensor).dtype == "bool" for read in reads(stage.body)
        ):
            continue
        tensors = {
            tensor.name: tensor
            for tensor in (*expression.inputs, *(one.tensor for one in expression.stages))
        }
        name = unused(f"{stage.name}ph", tensors)
        along = {found.axis.name: found for found in phases}
        split = {
            axis: Axis(name=unused(f"{axis}ph", stage.extents), extent=found.stride)
            for axis, found in along.items()
        }
        axes = (
            stage.axes
            if all(phase.exact for phase in phases)
            else _weighted_last(stage, term, phases)
        )
        made = _by_phases(replace(stage, name=name, axes=axes), term, phases, split, tensors)
        places = (
            along[axis.name].place if axis.name in along else (Var(axis.name),) for axis in axes
        )
        whole = Stage(
            name=stage.name,
            axes=stage.axes,
            body=Read(name, tuple(chain.from_iterable(places))),
            dtype=stage.dtype,
        )
        stages = tuple(
            other
            for one in expression.stages
            for other in ((made, whole) if one is stage else (one,))
        )
        rewritten = inlined(replace(expression, stages=stages))
        for phase in phases:
            if phase.exact:
                rewritten = _outputs_split(rewritten, name, phase, split[phase.axis.name])
        return phased(rewritten)  # ends: a rule fewer each time
    return expression


# --- which sums these are
# ------------------------------------------------------------------------------


def _term(body: Scalar) -> _Term:
    match body:
        case Binary(op="mul", lhs=lhs, rhs=rhs):
            left, right = _term(lhs), _term(rhs)
            conditions = left.conditions + right.conditions
            return _Term(
                factors=left.factors + right.factors,
                conditions=conditions,
                zero=left.zero or right.zero,
            )
        case Select(cond=cond, then=then, other=Const(value=0) as zero):
            inner = _term(then)
            return replace(inner, conditions=(*conjuncts(cond), *inner.conditions), zero=zero)
        case Cast(dtype=dtype, arg=arg):
            inner = _term(arg)
            converted = None if inner.zero is None else identity("sum", dtype)
            return _Term(
                factors=(Cast(dtype, _product(inner.factors)),),
                conditions=inner.conditions,
                zero=converted,
            )
        case _:
            return _Term(factors=(body,))


def _phases(stage: Stage, term: _Term) -> tuple[_Phase, ...]:
    """Of each rule that can be followed; no two speak of one axis."""
    found: list[_Phase] = []
    for condition in term.conditions:
        phase = _phase(stage, condition)
        taken = {axis for one in found for axis in (one.axis, one.window)}
        if phase is not None and phase.saves and not taken & {phase.axis, phase.window}:
            found.append(phase)
    return tuple(found)


def _phase(stage: Stage, condition: Scalar) -> _Phase | None:
    match condition:
        case Binary(
            op="eq",
            lhs=Binary(op="floormod", lhs=index, rhs=Const(value=value)),
            rhs=Const(value=rest),
        ):
            form, stride = linear(index), int(value)
        case _:
            return None
    if (
        form is None or stride < 2 or not 0 <= int(rest) < stride
    ):  # of other numbers none is a remainder
        return None
    axes, windows = (
        [axis for axis in among if form.coefficient(axis.name) % stride]
        for among in (stage.axes, stage.reduce_axes)
    )
    if len(axes) != 1 or len(windows) != 1 or gcd(form.coefficient(windows[0].name), stride) > 1:
        return None
    (axis,), (window,) = axes, windows
    step, inverse = form.coefficient(axis.name), pow(form.coefficient(window.name), -1, stride)
    for shift in range(stride):
        weights = [
            -inverse * (step * (phase - shift) + form.constant - int(rest)) % stride
            for phase in range(stride)
        ]
        slope = weights[1] - weights[0]
        if all(weight == weights[0] + slope * phase for phase, weight in enumerate(weights)):
            first = weights[0]
            return _Phase(
                rule=condition,
                axis=axis,
                window=window,
                stride=stride,
                shift=shift,
                first=first,
                slope=slope,
            )
    return None


def _weighted_last(stage: Stage, term: _Term, phases: Sequence[_Phase]) -> tuple[Axis, ...]:
    """The axes with those last that weights move with and are no window's: sums that
    are copied once more can lie as vectors of them are made, since a copy transposes in
    registers."""
    windows, moved = ({getattr(phase, of).name for phase in phases} for of in ("window", "axis"))
    found = [
        {node.name for node in walk(read) if isinstance(node, Var)}
        for factor in term.factors
        for read in reads(factor)
    ]
    weighted = set[str]().union(
        *(names for names in found if names & windows and not names & moved)
    )
    return tuple(
        sorted(stage.axes, key=lambda axis: axis.extent > 1 and axis.name in weighted - moved)
    )


# --- the sum
# ------------------------------------------------------------------------------


def _by_phases(
    stage: Stage, term: _Term, phases: Sequence[_Phase], split: Mapping[str, Axis], tensors: Tensors
) -> Stage:
    by_axis, by_window = (
        {getattr(phase, of).name: phase for phase in phases} for of in ("axis", "window")
    )
    values: dict[str, Scalar] = {}
    ends: list[Scalar] = []
    for phase in phases:
        within = split[phase.axis.name].name
        values[phase.axis.name] = Linear(
            {phase.axis.name: phase.stride, within: 1}, -phase.shift
        ).index
        weight = Linear({phase.window.name: phase.stride, within: phase.slope}, phase.first)
        values[phase.window.name] = weight.index
        if phase.window.extent % phase.stride:
            ends.append(Binary("lt", values[phase.window.name], constant(phase.window.extent)))
    parts = (
        (replace(axis, extent=by_axis[axis.name].blocks), split[axis.name])
        if axis.name in by_axis
        else (axis,)
        for axis in stage.axes
    )
    axes = tuple(chain.from_iterable(parts))
    windows = tuple(
        replace(axis, extent=by_window[axis.name].steps) if axis.name in by_window else axis
        for axis in stage.reduce_axes
    )
    extents = {axis.name: axis.extent for axis in (*axes, *windows)}
    rules = [phase.rule for phase in phases]
    conditions = [_substituted(one, values, extents) for one in term.conditions if one not in rules]
    factors = [_substituted(factor, values, extents) for factor in term.factors]
    # Where a phase has a weight less than others its products are left out; an
    # instruction that takes several takes zeros too.
    padded = (
        (*conditions, *ends) if all(isinstance(factor, Cast) for factor in factors) else conditions
    )
    kept = []
    for condition in (*conditions, *ends):
        bare = condition in padded and all(
            _bare(factor) is not None for factor in factors
        )  # zero need not be zero of others
        at = next(
            (
                at
                for at, factor in enumerate(factors)
                if bare and _implied(condition, factor, tensors)
            ),
            None,
        )
        if at is None:
            kept.append(_safe(condition, tensors, extents, ()))
        else:
            factors[at] = _padded(factors[at], tensors)
    body = _product(tuple(_safe(factor, tensors, extents, kept) for factor in factors))
    for condition in reversed(kept):
        assert term.zero is not None
        body = Select(condition, body, term.zero)
    return replace(stage, axes=axes, reduce_axes=windows, body=body)


def _substituted(node: Scalar, values: Mapping[str, Scalar], extents: Mapping[str, int]) -> Scalar:
    """The tree with iterators replaced by others of these extents, quotients and
    remainders worked out where they are linear."""

    def change(found: Scalar) -> Scalar | None:
        match found:
            case Var(name=name):
                return values.get(name)
            case Binary(op="floordiv" | "floormod" as op, lhs=lhs, rhs=Const(value=value)):
                inner = rewrite(lhs, change)
                divided = _divided(inner, int(value), extents)
                return (
                    Binary(op, inner, found.rhs)
                    if divided is None
                    else divided[0 if op == "floordiv" else 1]
                )
            case Read(indices=indices):
                changed = [rewrite(index, change) for index in indices]
                forms = [linear(index) for index in changed]
                plain = (
                    index if form is None else form.index
                    for index, form in zip(changed, forms, strict=True)
                )
                return replace(found, indices=tuple(plain))
            case _:
                return None

    return rewrite(node, change)


def _divided(index: Scalar, by: int, extents: Mapping[str, int]) -> tuple[Scalar, Scalar] | None:
    """Quotient and remainder, where what is no multiple is less than the divisor."""
    form = linear(index)
    if form is None or by < 1:
        return None
    whole = Linear(
        {name: step // by for name, step in form.coefficients.items() if step % by == 0},
        form.constant // by,
    )
    rest = Linear(
        {name: step for name, step in form.coefficients.items() if step % by}, form.constant % by
    ).index
    low, high = bounds(rest, extents) or (-1, by)
    return (whole.index, rest) if low >= 0 and high < by else None


def _bare(factor: Scalar) -> Read | None:
    """The read that a factor is, converted or not, if outside of its tensor it is zero
    or never there."""
    while isinstance(factor, Cast):
        factor = factor.arg
    return (
        factor
        if isinstance(factor, Read) and (factor.pad is None or factor.pad.value == 0)
        else None
    )


def _implied(condition: Scalar, factor: Scalar, tensors: Tensors) -> bool:
    """Whether the condition holds wherever the factor, a bare read, stays inside its tensor."""
    read = _bare(factor)
    if read is None:
        return False
    places = tuple(zip(read.indices, tensors[read.tensor].shape, strict=True))
    least = [Binary("ge", index, constant(0)) for index, _ in places]
    return _follows(
        condition, [*least, *(Binary("lt", index, constant(extent)) for index, extent in places)]
    )


def _follows(condition: Scalar, known: Iterable[Scalar]) -> bool:
    """Whether one comparison holds where all of some others do."""
    wanted = _limit(condition)
    if wanted is None:
        return False
    limits = [
        limit for limit in map(_limit, known) if limit is not None and limit.moving == wanted.moving
    ]
    if wanted.low is not None:
        return any(limit.low is not None and limit.low >= wanted.low for limit in limits)
    return any(
        limit.high is not None and wanted.high is not None and limit.high <= wanted.high
        for limit in limits
    )


@dataclass(frozen=True, slots=True)
class _Limit:
    """A comparison as a sum of steps of iterators that is at least `low`, or less than `high`."""

    moving: Mapping[str, int]  # without a common divisor, the first by name forwards
    low: int | None
    high: int | None


def _limit(condition: Scalar) -> _Limit | None:
    match condition:
        case Binary(op="ge" | "lt" as op, lhs=lhs, rhs=Const(value=value)):
            form = linear(lhs)
        case _:
            return None
    if form is None or not form.coefficients:
        return None
    by = gcd(*form.coefficients.values())
    least = -(-(int(value) - form.constant) // by)
    if form.coefficients[min(form.coefficients)] > 0:
        moving = {name: step // by for name, step in form.coefficients.items()}
        return _Limit(moving, least, None) if op == "ge" else _Limit(moving, None, least)
    moving = {name: -step // by for name, step in form.coefficients.items()}
    return _Limit(moving, None, 1 - least) if op == "ge" else _Limit(moving, 1 - least, None)


def _padded(factor: Scalar, tensors: Tensors) -> Scalar:
    if isinstance(factor, Cast):
        return replace(factor, arg=_padded(factor.arg, tensors))
    assert isinstance(factor, Read)
    return (
        factor
        if factor.pad is not None
        else replace(factor, pad=identity("sum", tensors[factor.tensor].dtype))
    )


def _safe(
    node: Scalar, tensors: Tensors, extents: Mapping[str, int], known: Collection[Scalar]
) -> Scalar:
    """The tree with reads padded that may leave their tensors, where known conditions
    hold, at outputs which nobody asked for."""

    def change(found: Scalar) -> Scalar | None:
        if not isinstance(found, Read):
            return None
        read = replace(found, indices=tuple(rewrite(index, change) for index in found.indices))
        tensor = tensors[read.tensor]
        inside = in_bounds(read.indices, tensor.shape, extents)
        leaves = (
            read.pad is None
            and inside is not None
            and not all(_follows(one, known) for one in conjuncts(inside))
        )
        return replace(read, pad=identity("sum", tensor.dtype)) if leaves else read

    return rewrite(node, change)


# --- its readers
# ------------------------------------------------------------------------------


def _outputs_split(expression: Expression, name: str, phase: _Phase, within: Axis) -> Expression:
    """The expression with the axis of its outputs that read a phase each becoming two
    as well: they are written in place."""
    stages = []
    for stage in expression.stages:
        axis = next(
            (
                one
                for one in stage.axes
                if one.extent == phase.axis.extent and _placed(stage, name, one, phase)
            ),
            None,
        )
        alone = (
            stage.name in expression.outputs
            and not expression.consumers(stage.name)
            and is_elementwise(stage)
        )
        if axis is None or not alone:
            stages.append(stage)
            continue
        inner = replace(within, name=unused(within.name, stage.extents))
        parts = (
            (replace(one, extent=phase.blocks), inner) if one == axis else (one,)
            for one in stage.axes
        )
        axes = tuple(chain.from_iterable(parts))
        at = Linear({axis.name: phase.stride, inner.name: 1}, 0).index
        body = _substituted(stage.body, {axis.name: at}, {one.name: one.extent for one in axes})
        stages.append(replace(stage, axes=axes, body=body))
    return replace(expression, stages=tuple(stages))


def _placed(stage: Stage, name: str, axis: Axis, phase: _Phase) -> bool:
    """Whether a stage reads the sums by the block and the phase of this axis of its own."""
    place = replace(phase, axis=axis).place
    return any(place in pairwise(read.indices) for read in reads(stage.body) if read.tensor == name)


# --- small things
# ------------------------------------------------------------------------------


def _product(factors: Sequence[Scalar]) -> Scalar:
    first, *others = factors
    for other in others:
        first = Binary("mul", first, other)
    return first
