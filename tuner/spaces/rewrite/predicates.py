"""Predicates of reductions: conditions under which a term can change the result.

Where one fails, the term is not computed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.workload.affine import Affine, linear
from tuner.workload.dtypes import DType
from tuner.workload.expression import (
    Binary,
    Cast,
    Const,
    Reducer,
    Scalar,
    Select,
    Stage,
    Unary,
    Var,
    arithmetic,
    walk,
)
from tuner.workload.scalar_operators import BINARY_OPERATORS, UNARY_OPERATORS, identity

# Points of the axes in conditions that are enumerated; of more, as many are sampled.
ENUMERATED = 1 << 22


def split_predicates(
    body: Scalar, reducer: Reducer, dtype: DType, lanes: Collection[str] = ()
) -> tuple[tuple[Scalar, ...], Scalar]:
    """The predicates of a reduction's term, and the term where they hold.

    Conditions that differ between vector lanes stay in the term, because a vector is
    computed as a whole.
    """
    match body:
        case Select(cond=cond, then=then, other=Const(value=value) as other) if (
            value == identity(reducer, dtype).value
        ):
            conditions, term = split_predicates(then, reducer, dtype, lanes)
            parts = conjuncts(cond)
            of_vectors = [
                condition
                for condition in parts
                if not is_iterator_condition(condition) or iterators(condition) & set(lanes)
            ]
            for condition in reversed(of_vectors):
                term = Select(condition, term, other)
            return (
                *(condition for condition in parts if condition not in of_vectors),
                *conditions,
            ), term
        case _:
            return (), body


def conjuncts(condition: Scalar) -> tuple[Scalar, ...]:
    """The operands of a conjunction; the condition itself where it is none."""
    match condition:
        case Binary(op="and", lhs=lhs, rhs=rhs):
            return (*conjuncts(lhs), *conjuncts(rhs))
        case _:
            return (condition,)


def term_predicates(stage: Stage) -> tuple[tuple[Scalar, ...], Scalar]:
    """The predicates of a stage's term and the term; only its body if it is no reduction."""
    return (
        ((), stage.body)
        if stage.reducer is None
        else split_predicates(stage.body, stage.reducer, stage.accumulator)
    )


def live_fraction(stage: Stage, also: Collection[Scalar] = ()) -> float:
    """Share of a stage's points at which its predicates and further conditions hold."""
    conditions = (*term_predicates(stage)[0], *also)
    extents = stage.extents
    moving = {name: extents[name] for name in sorted(set[str]().union(*map(iterators, conditions)))}
    if prod(moving.values()) <= ENUMERATED:
        return float(np.mean(_holds(conditions, moving)))
    drawn = np.random.default_rng(0)
    return float(
        np.mean(
            _all(
                conditions, {name: drawn.integers(moving[name], size=ENUMERATED) for name in moving}
            )
        )
    )


def hold_somewhere_along(
    conditions: Collection[Scalar], extents: Mapping[str, int], along: str
) -> bool:
    """Whether for any values of the other iterators all conditions hold at some `along`.

    Of too many points to enumerate, linear comparisons are solved for the iterator, and
    what is not solved counts as False.
    """
    moving = {
        name: extents[name]
        for name in sorted(set[str]().union({along}, *map(iterators, conditions)))
    }
    if prod(moving.values()) > ENUMERATED:
        return _leave_something(conditions, moving, along)
    return bool(np.all(np.any(_holds(conditions, moving), axis=list(moving).index(along))))


def _leave_something(
    conditions: Collection[Scalar], extents: Mapping[str, int], along: str
) -> bool:
    """Whether linear comparisons leave a value of `along` for any values of the others.

    Each one is a bound on `along` from one side, a linear form of the others where its
    coefficient is one. Some integer is between them where no lower bound is ever above an
    upper one, which is decided at a corner of the others' values.
    """
    lower = [Affine({}, 0)]
    upper = [Affine({}, extents[along] - 1)]
    for condition in conditions:
        difference = at_most_zero(condition)
        step = 0 if difference is None else difference.coefficient(along)
        if difference is None or abs(step) != 1:
            return False
        terms = {atom: c for atom, c in difference.terms.items() if atom != Var(along)}
        others = Affine(terms, difference.constant)
        if step > 0:
            upper.append(others.scaled(-1))
        else:
            lower.append(others)
    return all(_greatest(low, high, extents) <= 0 for low in lower for high in upper)


def _greatest(first: Affine, second: Affine, extents: Mapping[str, int]) -> int:
    """The greatest value of the difference of two linear forms."""
    total = first.constant - second.constant
    for name in {**first.coefficients, **second.coefficients}:
        step = first.coefficient(name) - second.coefficient(name)
        total += max(step, 0) * (extents[name] - 1)
    return total


def at_most_zero(condition: Scalar) -> Affine | None:
    """The linear form of iterators that is at most 0 where a comparison holds.

    None of what is no comparison of linear forms by order.
    """
    if not isinstance(condition, Binary) or condition.op not in ("le", "lt", "ge", "gt"):
        return None
    lhs, rhs = linear(condition.lhs), linear(condition.rhs)
    if lhs is None or rhs is None:
        return None
    sign = 1 if condition.op in ("le", "lt") else -1
    steps = {
        name: sign * (lhs.coefficient(name) - rhs.coefficient(name))
        for name in {**lhs.coefficients, **rhs.coefficients}
    }
    constant = sign * (lhs.constant - rhs.constant) + int(condition.op in ("lt", "gt"))
    return Affine.of_iterators({name: step for name, step in steps.items() if step}, constant)


def term_operations(stage: Stage) -> int:
    """Arithmetic operations at one live point of a stage; a multiply-add counts as 2."""
    _, term = term_predicates(stage)
    return arithmetic(term) + (1 if stage.reducer else 0)


def is_iterator_condition(condition: Scalar) -> bool:
    """Whether a condition depends on iterators only."""
    return all(
        isinstance(node, Var | Const | Cast)
        or (isinstance(node, Unary) and node.op in ("neg", "not"))
        or (isinstance(node, Binary) and BINARY_OPERATORS[node.op].is_integral)
        for node in walk(condition)
    )


def iterators(condition: Scalar) -> set[str]:
    """Names of the iterators in a condition."""
    return {node.name for node in walk(condition) if isinstance(node, Var)}


def _holds(conditions: Collection[Scalar], extents: Mapping[str, int]) -> NDArray[np.bool_]:
    """Whether all conditions hold at each point, with one dimension per iterator."""
    shape = tuple(extents.values())
    places = np.indices(shape, np.int32, sparse=True)
    return np.broadcast_to(_all(conditions, dict(zip(extents, places, strict=True))), shape)


def _all(conditions: Collection[Scalar], values: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
    holds = np.asarray(True)
    for condition in conditions:
        holds = np.logical_and(holds, _value(condition, values))
    return holds


def _value(node: Scalar, values: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    match node:
        case Var(name=name):
            return values[name]
        case Const(value=value):
            return np.asarray(value)
        case Cast(arg=arg):
            return _value(arg, values)
        case Unary(op=op, arg=arg):
            operand = _value(arg, values)
            return np.asarray(UNARY_OPERATORS[op].evaluate(operand))
        case Binary(op=op, lhs=lhs, rhs=rhs):
            return np.asarray(
                BINARY_OPERATORS[op].evaluate(_value(lhs, values), _value(rhs, values))
            )
        case _:
            raise AssertionError(f"{node} is no part of a plain condition")
