"""Liveness: the points and terms of reductions that can affect the outputs.

A causal mask leaves half of attention to be computed: scores beyond it are not read,
and weights there are zero. Such conditions are propagated through maps from the stages
that state them to the reductions before and after.

A term of a sum with a factor of zero counts as zero, even if another factor is infinite
or NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tuner.spaces.program.tiles import constant
from tuner.spaces.rewrite.predicates import (
    conjuncts,
    hold_somewhere_along,
    is_iterator_condition,
    iterators,
    live_fraction,
    term_operations,
    term_predicates,
)
from tuner.spaces.rewrite.stages import is_elementwise
from tuner.workload.affine import linear
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
    Unary,
    Var,
    children,
    rewrite,
    substitute,
)

# Whether a comparison holds where the difference of its sides is large.
_RISING = {"le": False, "lt": False, "ge": True, "gt": True}


def live_conditions(expression: Expression) -> dict[str, tuple[Scalar, ...]]:
    """By stage, comparisons of its axes outside of which it is dead.

    There the values of a map are zero, and the terms of a reduction are zero, its
    identity, or part of points that are not read. Stages without conditions are left
    out.
    """
    follow = _Propagation(expression)
    live = {}
    for stage in expression.stages:
        zero = (
            follow.zeros(stage, stage.body)
            if stage.reducer in (None, "sum")
            else term_predicates(stage)[0]
        )
        unread = follow.read_under(stage) if stage.reducer is not None else ()
        if conditions := tuple(
            dict.fromkeys(condition for condition in (*unread, *zero) if _is_comparison(condition))
        ):
            live[stage.name] = conditions
    return live


def live_flops(expression: Expression) -> int:
    """Arithmetic operations at the live points of all stages; a multiply-add counts as 2."""
    matters = live_conditions(expression)
    return sum(
        int(stage.points * live_fraction(stage, matters.get(stage.name, ())))
        * term_operations(stage)
        for stage in expression.stages
    )


def tile_condition(
    condition: Scalar, indices: Mapping[str, Scalar], tile: Sequence[Axis]
) -> Scalar:
    """The comparison at the corner of a tile where it holds if it holds anywhere.

    `indices` gives each axis in terms of a nest's iterators. Those of the tile are
    replaced by their first or last value.
    """
    assert isinstance(condition, Binary)
    lhs, rhs = linear(condition.lhs), linear(condition.rhs)
    assert lhs is not None and rhs is not None
    first = {axis.name: constant(0) for axis in tile}
    last = {axis.name: constant(axis.extent - 1) for axis in tile}
    ends = {
        name: last
        if (lhs.coefficient(name) > rhs.coefficient(name)) == _RISING[condition.op]
        else first
        for name in iterators(condition)
    }
    return substitute(
        condition, {name: substitute(indices[name], end) for name, end in ends.items()}
    )


class _Propagation:
    """Propagates conditions from stage to stage of one expression."""

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        self.stages = {stage.name: stage for stage in expression.stages}

    def read_under(self, stage: Stage) -> tuple[Scalar, ...]:
        """Conditions in the stage's axes under which each of its readers reads a point."""
        if stage.name in self.expression.outputs:
            return ()
        common: list[Scalar] | None = None
        for reader in self.expression.consumers(stage.name):
            for read, conditions in _occurrences(reader.body, stage.name, ()):
                own = _plain_indices(read)
                if own is None:
                    return ()
                renamed = {name: Var(axis.name) for name, axis in zip(own, stage.axes, strict=True)}
                here = [
                    substitute(condition, renamed)
                    for condition in conditions
                    if is_iterator_condition(condition) and iterators(condition) <= set(own)
                ]
                common = (
                    here
                    if common is None
                    else [condition for condition in common if condition in here]
                )
        return tuple(common or ())

    def zeros(self, stage: Stage, node: Scalar) -> tuple[Scalar, ...]:
        """Conditions whose failure makes the value zero, or a term of the stage's sum."""
        match node:
            case Select(cond=cond, then=then, other=Const(value=0)):
                return (
                    *(
                        condition
                        for condition in conjuncts(cond)
                        if is_iterator_condition(condition)
                    ),
                    *self.zeros(stage, then),
                )
            case Binary(op="mul", lhs=lhs, rhs=rhs) if stage.reducer is not None:
                return (*self.zeros(stage, lhs), *self.zeros(stage, rhs))
            # If the sum is zero, all exponentials are: then live points are NaN too.
            case Binary(op="div", lhs=lhs, rhs=rhs) if self._reduced(
                stage, rhs, lhs, "sum"
            ) and self._is_exponential(lhs):
                return self.zeros(stage, lhs)
            case Cast(arg=arg):
                return self.zeros(stage, arg)
            case Unary(op="exp", arg=Binary(op="sub", lhs=lhs, rhs=rhs)) if row := self._reduced(
                stage, rhs, lhs, "max"
            ):
                return self._masked(stage, lhs, row)
            case Read():
                value = self._value(node)
                return () if value is None else self.zeros(stage, value)
            case _:
                return ()

    def _masked(self, stage: Stage, node: Scalar, along: str) -> tuple[Scalar, ...]:
        """Conditions whose failure makes a value of a softmax minus infinity.

        Its exponential, after the maximum of the row is subtracted, is then zero. In
        every row all conditions must hold somewhere: otherwise the maximum is minus
        infinity too, and the exponential NaN.
        """
        conditions: tuple[Scalar, ...] = ()
        masked = self._resolved(node)
        while (
            isinstance(masked, Select)
            and isinstance(masked.other, Const)
            and masked.other.value == float("-inf")
        ):
            conditions, masked = (*conditions, *conjuncts(masked.cond)), masked.then
        sound = all(
            is_iterator_condition(condition) for condition in conditions
        ) and hold_somewhere_along(conditions, stage.extents, along)
        return conditions if sound else ()

    def _reduced(self, stage: Stage, reduced: Scalar, node: Scalar, reducer: str) -> str | None:
        """The stage's iterator over which `reduced` is the reduction of `node`.

        None where `reduced` is no read of such a reduction over all values.
        """
        while isinstance(reduced, Cast):
            reduced = reduced.arg
        row = self.stages.get(reduced.tensor) if isinstance(reduced, Read) else None
        own = _plain_indices(reduced) if isinstance(reduced, Read) else None
        if row is None or own is None or row.reducer != reducer:
            return None
        along = iterators(self._resolved(node)) - set(own)
        if (
            len(along) != 1
            or len(row.reduce_axes) != 1
            or stage.extents[min(along)] != row.reduce_axes[0].extent
        ):
            return None
        renamed = {axis.name: Var(name) for axis, name in zip(row.axes, own, strict=True)}
        body = substitute(row.body, renamed | {row.reduce_axes[0].name: Var(min(along))})
        return min(along) if self._resolved(body) == self._resolved(node) else None

    def _is_exponential(self, node: Scalar) -> bool:
        value = self._resolved(node)
        return isinstance(value, Unary) and value.op == "exp"

    def _value(self, read: Read) -> Scalar | None:
        """The value of a map at the point that is read.

        None where another stage is read, or not point by point.
        """
        stage = self.stages.get(read.tensor)
        if stage is None or not is_elementwise(stage) or _plain_indices(read) is None:
            return None
        return substitute(
            stage.body,
            {axis.name: index for axis, index in zip(stage.axes, read.indices, strict=True)},
        )

    def _resolved(self, node: Scalar) -> Scalar:
        """The value with maps inlined and conversions dropped."""

        def change(part: Scalar) -> Scalar | None:
            if isinstance(part, Cast):
                return self._resolved(part.arg)
            value = self._value(part) if isinstance(part, Read) else None
            return None if value is None else self._resolved(value)

        return rewrite(node, change)


def _occurrences(
    node: Scalar, tensor: str, under: tuple[Scalar, ...]
) -> Iterator[tuple[Read, tuple[Scalar, ...]]]:
    """Reads of a tensor with the conditions under which they happen."""
    match node:
        case Select(cond=cond, then=then, other=other):
            yield from _occurrences(cond, tensor, under)
            yield from _occurrences(then, tensor, (*under, *conjuncts(cond)))
            yield from _occurrences(other, tensor, under)
        case _:
            if isinstance(node, Read) and node.tensor == tensor:
                yield node, under
            for child in children(node):
                yield from _occurrences(child, tensor, under)


def _plain_indices(read: Read) -> list[str] | None:
    """Names of the iterators that are the indices, each once; None where others stand
    there, or padding."""
    indices = [index.name for index in read.indices if isinstance(index, Var)]
    return indices if read.pad is None and len(set(indices)) == len(read.indices) else None


def _is_comparison(condition: Scalar) -> bool:
    """Whether it compares linear forms, so that it is decided at a corner of a tile."""
    sides = (
        (condition.lhs, condition.rhs)
        if isinstance(condition, Binary) and condition.op in _RISING
        else ()
    )
    return bool(sides) and all(linear(side) is not None for side in sides)
