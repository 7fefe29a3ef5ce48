"""Polyphase decomposition of sums whose terms count only where an index divides evenly.

A transposed convolution of stride s has s phases: every s-th output is a convolution
with every s-th weight. The other weights only meet zeros (Dumoulin & Visin, "A guide to
convolution arithmetic for deep learning" (2016), chapter 4). The output axis becomes
two, the inner one for the phase, and the sum along the window runs over the weights of
a phase. Products with zero are left out, so that an infinite weight no longer makes
them NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from math import gcd

from tuner.spaces.program.tiles import add, constant
from tuner.spaces.rewrite.access import in_bounds_condition
from tuner.spaces.rewrite.implication import implies
from tuner.spaces.rewrite.predicates import conjuncts
from tuner.spaces.rewrite.stages import fresh_name, inlined, is_elementwise
from tuner.workload.affine import Affine, linear, value_range
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
from tuner.workload.scalar_operators import identity

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Term:
    """A product that is zero where one of its conditions fails."""

    factors: tuple[Scalar, ...]
    conditions: tuple[Scalar, ...] = ()
    zero: Const | None = None  # where there are conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class _Phase:
    """An output axis y and a window axis r, coupled by a divisibility rule.

    Terms count only where a*y + b*r + c is a multiple of the stride s. With
    y = s*block + phase - shift, r is s*step + first + slope*phase.
    """

    rule: Scalar  # the condition
    axis: Axis
    window: Axis
    stride: int
    shift: int  # positions of the first block that precede the first output
    first: int  # first weight of phase 0
    slope: int  # by which the first weight changes from phase to phase

    @property
    def blocks(self) -> int:
        return -(-(self.axis.extent + self.shift) // self.stride)

    @property
    def steps(self) -> int:
        return -(-self.window.extent // self.stride)

    @property
    def exact(self) -> bool:
        """Whether the blocks cover the axis exactly."""
        return self.shift == 0 and self.axis.extent == self.blocks * self.stride

    @property
    def saves(self) -> bool:
        return self.blocks * self.stride * self.steps < self.axis.extent * self.window.extent

    @property
    def place(self) -> tuple[Scalar, Scalar]:
        """Block and phase of an output, as expressions of its axis."""
        position = add(Var(self.axis.name), constant(self.shift))
        return Binary("floordiv", position, constant(self.stride)), Binary(
            "floormod", position, constant(self.stride)
        )


def decompose(expression: Expression) -> Expression:
    """The expression without such terms; the same object where there are none.

    Elementwise stages are inlined. Outputs keep their names and the order of their
    elements, but may have more dimensions.
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
            for tensor in (*expression.inputs, *(defined.tensor for defined in expression.stages))
        }
        name = fresh_name(f"{stage.name}ph", tensors)
        along = {phase.axis.name: phase for phase in phases}
        split = {
            axis: Axis(name=fresh_name(f"{axis}ph", stage.extents), extent=phase.stride)
            for axis, phase in along.items()
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
            replacement
            for original in expression.stages
            for replacement in ((made, whole) if original is stage else (original,))
        )
        rewritten = inlined(replace(expression, stages=stages))
        for phase in phases:
            if phase.exact:
                rewritten = _outputs_split(rewritten, name, phase, split[phase.axis.name])
        return decompose(rewritten)  # ends: a rule fewer each time
    return expression


# --- which sums these are


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
    """The phases of all usable rules; no two share an axis."""
    phases: list[_Phase] = []
    for condition in term.conditions:
        phase = _phase(stage, condition)
        split = {axis for earlier in phases for axis in (earlier.axis, earlier.window)}
        if phase is not None and phase.saves and not split & {phase.axis, phase.window}:
            phases.append(phase)
    return tuple(phases)


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
    if form is None or stride < 2 or not 0 <= int(rest) < stride:
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
    """The axes in an order with those last on which weights depend.

    These are the axes that vectors run along. The sums are copied to their final layout
    afterwards, and the copy transposes in registers.
    """
    windows, moved = ({getattr(phase, of).name for phase in phases} for of in ("window", "axis"))
    iterators_of_reads = [
        {node.name for node in walk(read) if isinstance(node, Var)}
        for factor in term.factors
        for read in reads(factor)
    ]
    weighted = set[str]().union(
        *(names for names in iterators_of_reads if names & windows and not names & moved)
    )
    return tuple(
        sorted(stage.axes, key=lambda axis: axis.extent > 1 and axis.name in weighted - moved)
    )


# --- the sum


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
        values[phase.axis.name] = Affine.of_iterators(
            {phase.axis.name: phase.stride, within: 1}, -phase.shift
        ).index
        weight = Affine.of_iterators(
            {phase.window.name: phase.stride, within: phase.slope}, phase.first
        )
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
    conditions = [
        _substituted(condition, values, extents)
        for condition in term.conditions
        if condition not in rules
    ]
    factors = [_substituted(factor, values, extents) for factor in term.factors]
    # Phases may differ by one in the number of their weights. Surplus products are left
    # out, except for instructions that take several products, which take zeros.
    padded = (
        (*conditions, *ends) if all(isinstance(factor, Cast) for factor in factors) else conditions
    )
    kept = []
    for condition in (*conditions, *ends):
        # Other factors need not be zero where a read is.
        bare = condition in padded and all(_bare_read(factor) is not None for factor in factors)
        which = next(
            (
                number
                for number, factor in enumerate(factors)
                if bare and _implied_by_read(condition, factor, tensors)
            ),
            None,
        )
        if which is None:
            kept.append(_padded_where_needed(condition, tensors, extents, ()))
        else:
            factors[which] = _padded(factors[which], tensors)
    body = _product(
        tuple(_padded_where_needed(factor, tensors, extents, kept) for factor in factors)
    )
    for condition in reversed(kept):
        assert term.zero is not None
        body = Select(condition, body, term.zero)
    return replace(stage, axes=axes, reduce_axes=windows, body=body)


def _substituted(node: Scalar, values: Mapping[str, Scalar], extents: Mapping[str, int]) -> Scalar:
    """The tree with iterators replaced, and quotients and remainders simplified.

    `extents` are those of the new iterators. Only linear dividends are simplified.
    """

    def change(part: Scalar) -> Scalar | None:
        match part:
            case Var(name=name):
                return values.get(name)
            case Binary(op="floordiv" | "floormod" as op, lhs=lhs, rhs=Const(value=value)):
                inner = rewrite(lhs, change)
                divided = _divided(inner, int(value), extents)
                return (
                    Binary(op, inner, part.rhs)
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
                return replace(part, indices=tuple(plain))
            case _:
                return None

    return rewrite(node, change)


def _divided(index: Scalar, by: int, extents: Mapping[str, int]) -> tuple[Scalar, Scalar] | None:
    """Quotient and remainder of a linear index; None where they are not linear.

    They are linear where the terms that are no multiples of the divisor add up to less
    than it.
    """
    form = linear(index)
    if form is None or by < 1:
        return None
    whole = Affine.of_iterators(
        {name: step // by for name, step in form.coefficients.items() if step % by == 0},
        form.constant // by,
    )
    rest = Affine.of_iterators(
        {name: step for name, step in form.coefficients.items() if step % by}, form.constant % by
    ).index
    return (whole.index, rest) if value_range(rest, extents).is_index_of(by) else None


def _bare_read(factor: Scalar) -> Read | None:
    """The read that a factor consists of, if it is zero outside its tensor.

    It may be converted, or unpadded because it never leaves its tensor.
    """
    while isinstance(factor, Cast):
        factor = factor.arg
    return (
        factor
        if isinstance(factor, Read) and (factor.pad is None or factor.pad.value == 0)
        else None
    )


def _implied_by_read(condition: Scalar, factor: Scalar, tensors: Tensors) -> bool:
    """Whether the condition holds wherever a factor, a bare read, is inside its tensor."""
    read = _bare_read(factor)
    if read is None:
        return False
    places = tuple(zip(read.indices, tensors[read.tensor].shape, strict=True))
    least = [Binary("ge", index, constant(0)) for index, _ in places]
    return implies(
        condition, [*least, *(Binary("lt", index, constant(extent)) for index, extent in places)]
    )


def _padded(factor: Scalar, tensors: Tensors) -> Scalar:
    if isinstance(factor, Cast):
        return replace(factor, arg=_padded(factor.arg, tensors))
    assert isinstance(factor, Read)
    return (
        factor
        if factor.pad is not None
        else replace(factor, pad=identity("sum", tensors[factor.tensor].dtype))
    )


def _padded_where_needed(
    node: Scalar, tensors: Tensors, extents: Mapping[str, int], premises: Collection[Scalar]
) -> Scalar:
    """The tree with padding for reads that may leave their tensors.

    They do so at outputs that only fill up the last block. Reads that stay inside under
    the premises are left as they are.
    """

    def change(part: Scalar) -> Scalar | None:
        if not isinstance(part, Read):
            return None
        read = replace(part, indices=tuple(rewrite(index, change) for index in part.indices))
        tensor = tensors[read.tensor]
        inside = in_bounds_condition(read.indices, tensor.shape, extents)
        leaves = (
            read.pad is None
            and inside is not None
            and not all(implies(bound, premises) for bound in conjuncts(inside))
        )
        return replace(read, pad=identity("sum", tensor.dtype)) if leaves else read

    return rewrite(node, change)


# --- its readers


def _outputs_split(expression: Expression, name: str, phase: _Phase, within: Axis) -> Expression:
    """The expression with output axes split as the sums they read.

    Such outputs are then written in place.
    """
    stages = []
    for stage in expression.stages:
        axis = next(
            (
                own
                for own in stage.axes
                if own.extent == phase.axis.extent and _reads_phases(stage, name, own, phase)
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
        inner = replace(within, name=fresh_name(within.name, stage.extents))
        parts = (
            (replace(own, extent=phase.blocks), inner) if own == axis else (own,)
            for own in stage.axes
        )
        axes = tuple(chain.from_iterable(parts))
        element = Affine.of_iterators({axis.name: phase.stride, inner.name: 1}, 0).index
        body = _substituted(
            stage.body, {axis.name: element}, {own.name: own.extent for own in axes}
        )
        stages.append(replace(stage, axes=axes, body=body))
    return replace(expression, stages=tuple(stages))


def _reads_phases(stage: Stage, name: str, axis: Axis, phase: _Phase) -> bool:
    """Whether a stage reads the sums by block and phase of one of its own axes."""
    place = replace(phase, axis=axis).place
    return any(place in pairwise(read.indices) for read in reads(stage.body) if read.tensor == name)


# --- small things


def _product(factors: Sequence[Scalar]) -> Scalar:
    first, *others = factors
    for other in others:
        first = Binary("mul", first, other)
    return first
