"""Predicates of reductions: conditions under which a term can change the result.

Where one fails, the term is not computed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.workload.expression import (
    Binary,
    Cast,
    Const,
    DType,
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

    False where there are too many points to enumerate.
    """
    moving = {
        name: extents[name]
        for name in sorted(set[str]().union({along}, *map(iterators, conditions)))
    }
    if prod(moving.values()) > ENUMERATED:
        return False
    return bool(np.all(np.any(_holds(conditions, moving), axis=list(moving).index(along))))


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
