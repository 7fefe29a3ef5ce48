"""What of a reduction matters to the outputs: terms that are zero elsewhere, and points
that nobody reads elsewhere.

A mask leaves half of causal attention to be computed: scores beyond it are read by
nobody, and weights there are zero. Such conditions are followed through maps from the
stages that state them to the reductions before and after. In a sum a weight of zero is
taken to make a term zero, so that an infinity it would meet makes no NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tuner.spaces.program.tiles import constant
from tuner.spaces.rewrite.access import linear
from tuner.spaces.rewrite.predicates import (
    conjuncts,
    counted,
    everywhere_some,
    is_plain,
    names,
    operations,
    share,
)
from tuner.spaces.rewrite.stages import is_elementwise
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

_RISING = {
    "le": False,
    "lt": False,
    "ge": True,
    "gt": True,
}  # whether a comparison holds where its difference is large


def needed(expression: Expression) -> dict[str, tuple[Scalar, ...]]:
    """By name of a stage, comparisons of its axes outside of which values of a map are
    zero, and terms of a reduction zero, its identity, or read by nobody. Stages without
    any are left out."""
    follow = _Follower(expression)
    found = {}
    for stage in expression.stages:
        zero = (
            follow.zeros(stage, stage.body) if stage.reducer in (None, "sum") else counted(stage)[0]
        )
        unread = follow.read_under(stage) if stage.reducer is not None else ()
        if conditions := tuple(
            dict.fromkeys(one for one in (*unread, *zero) if _is_comparison(one))
        ):
            found[stage.name] = conditions
    return found


def needed_flops(expression: Expression) -> int:
    """Arithmetic operations of all stages, only those that matter; a multiply-add as 2."""
    matters = needed(expression)
    return sum(
        int(stage.points * share(stage, matters.get(stage.name, ()))) * operations(stage)
        for stage in expression.stages
    )


def in_tile(condition: Scalar, indices: Mapping[str, Scalar], tile: Sequence[Axis]) -> Scalar:
    """The comparison in that corner of a tile in which it holds if it does anywhere:
    `indices` of its axes in a nest's iterators, of which those of the tile are gone."""
    assert isinstance(condition, Binary)
    lhs, rhs = linear(condition.lhs), linear(condition.rhs)
    assert lhs is not None and rhs is not None
    first = {axis.name: constant(0) for axis in tile}
    last = {axis.name: constant(axis.extent - 1) for axis in tile}
    ends = {
        name: last
        if (lhs.coefficient(name) > rhs.coefficient(name)) == _RISING[condition.op]
        else first
        for name in names(condition)
    }
    return substitute(
        condition, {name: substitute(indices[name], end) for name, end in ends.items()}
    )


class _Follower:
    """Follows conditions from stage to stage of one expression."""

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        self.stages = {stage.name: stage for stage in expression.stages}

    def read_under(self, stage: Stage) -> tuple[Scalar, ...]:
        """Conditions, in the stage's axes, under which all its readers are who read a point."""
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
                    substitute(one, renamed)
                    for one in conditions
                    if is_plain(one) and names(one) <= set(own)
                ]
                common = here if common is None else [one for one in common if one in here]
        return tuple(common or ())

    def zeros(self, stage: Stage, node: Scalar) -> tuple[Scalar, ...]:
        """Conditions where one of which fails a value in the stage is zero, or a term
        of its sum."""
        match node:
            case Select(cond=cond, then=then, other=Const(value=0)):
                return (
                    *(one for one in conjuncts(cond) if is_plain(one)),
                    *self.zeros(stage, then),
                )
            case Binary(op="mul", lhs=lhs, rhs=rhs) if stage.reducer is not None:
                return (*self.zeros(stage, lhs), *self.zeros(stage, rhs))
            # Of a sum that is zero all exponentials are: what counts is no number either.
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
        """Conditions where one of which fails the value is minus infinity, and its
        exponential, less the greatest of a row, zero.

        In every row all of them must hold somewhere: else the greatest is minus
        infinity too, and the exponential no number.
        """
        conditions: tuple[Scalar, ...] = ()
        masked = self._resolved(node)
        while (
            isinstance(masked, Select)
            and isinstance(masked.other, Const)
            and masked.other.value == float("-inf")
        ):
            conditions, masked = (*conditions, *conjuncts(masked.cond)), masked.then
        sound = all(is_plain(one) for one in conditions) and everywhere_some(
            conditions, stage.extents, along
        )
        return conditions if sound else ()

    def _reduced(self, stage: Stage, found: Scalar, node: Scalar, reducer: str) -> str | None:
        """The stage's iterator along which another one reduces the second value as a
        whole, if the first is a read of that."""
        while isinstance(found, Cast):
            found = found.arg
        row = self.stages.get(found.tensor) if isinstance(found, Read) else None
        own = _plain_indices(found) if isinstance(found, Read) else None
        if row is None or own is None or row.reducer != reducer:
            return None
        along = names(self._resolved(node)) - set(own)
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
        found = self._resolved(node)
        return isinstance(found, Unary) and found.op == "exp"

    def _value(self, read: Read) -> Scalar | None:
        """What a read of a map is the value of; None where it is none, or not read
        point by point."""
        stage = self.stages.get(read.tensor)
        if stage is None or not is_elementwise(stage) or _plain_indices(read) is None:
            return None
        return substitute(
            stage.body,
            {axis.name: index for axis, index in zip(stage.axes, read.indices, strict=True)},
        )

    def _resolved(self, node: Scalar) -> Scalar:
        """The value with maps written out and conversions left out."""

        def change(found: Scalar) -> Scalar | None:
            if isinstance(found, Cast):
                return self._resolved(found.arg)
            value = self._value(found) if isinstance(found, Read) else None
            return None if value is None else self._resolved(value)

        return rewrite(node, change)


def _occurrences(
    node: Scalar, tensor: str, under: tuple[Scalar, ...]
) -> Iterator[tuple[Read, tuple[Scalar, ...]]]:
    """Reads of a tensor with the conditions that hold there."""
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
    found = [index.name for index in read.indices if isinstance(index, Var)]
    return found if read.pad is None and len(set(found)) == len(read.indices) else None


def _is_comparison(condition: Scalar) -> bool:
    """Whether it compares linear forms, so that it can be asked of a corner of a tile."""
    sides = (
        (condition.lhs, condition.rhs)
        if isinstance(condition, Binary) and condition.op in _RISING
        else ()
    )
    return bool(sides) and all(linear(side) is not None for side in sides)
