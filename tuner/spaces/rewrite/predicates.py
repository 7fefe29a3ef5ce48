"""Terms of a reduction that count only under conditions: where one fails they change
nothing, and are not computed at all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.workload.expression import (
    INTEGER_RANGES,
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

ENUMERATED = 1 << 22  # points of the axes in conditions; of more as many are drawn at random
_NUMBERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide,
    "floormod": np.mod, "min": np.minimum,
    "max": np.maximum, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "eq": np.equal,
    "ne": np.not_equal, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


def identity(reducer: Reducer, dtype: DType) -> Const:
    """The value that changes nothing when it is combined."""
    if reducer in {"sum", "prod"}:
        return Const(0 if reducer == "sum" else 1, dtype)
    if dtype in INTEGER_RANGES:
        return Const(INTEGER_RANGES[dtype][0 if reducer == "max" else 1], dtype)
    return Const(float("-inf") if reducer == "max" else float("inf"), dtype)


def guarded(
    body: Scalar, reducer: Reducer, dtype: DType, lanes: Collection[str] = ()
) -> tuple[tuple[Scalar, ...], Scalar]:
    """Conditions under which a term of a reduction counts, and what it is where they hold.

    Those that differ from lane to lane stay in the term: a vector is computed as a whole.
    """
    match body:
        case Select(cond=cond, then=then, other=Const(value=value) as other) if (
            value == identity(reducer, dtype).value
        ):
            conditions, term = guarded(then, reducer, dtype, lanes)
            parts = conjuncts(cond)
            of_vectors = [one for one in parts if not is_plain(one) or names(one) & set(lanes)]
            for condition in reversed(of_vectors):
                term = Select(condition, term, other)
            return (*(one for one in parts if one not in of_vectors), *conditions), term
        case _:
            return (), body


def conjuncts(condition: Scalar) -> tuple[Scalar, ...]:
    """The conditions that hold together where this one does."""
    match condition:
        case Binary(op="and", lhs=lhs, rhs=rhs):
            return (*conjuncts(lhs), *conjuncts(rhs))
        case _:
            return (condition,)


def counted(stage: Stage) -> tuple[tuple[Scalar, ...], Scalar]:
    """Conditions under which a term of a stage counts, and the term; no condition and
    its body where nothing is reduced."""
    return (
        ((), stage.body)
        if stage.reducer is None
        else guarded(stage.body, stage.reducer, stage.accumulator)
    )


def share(stage: Stage, also: Collection[Scalar] = ()) -> float:
    """Of a stage's points those at which a term counts, and further conditions hold."""
    conditions = (*counted(stage)[0], *also)
    extents = stage.extents
    moving = {name: extents[name] for name in sorted(set[str]().union(*map(names, conditions)))}
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


def everywhere_some(conditions: Collection[Scalar], extents: Mapping[str, int], along: str) -> bool:
    """Whether all conditions hold for some value of one iterator, whatever the others
    are. No where there is too much to see."""
    moving = {
        name: extents[name] for name in sorted(set[str]().union({along}, *map(names, conditions)))
    }
    if prod(moving.values()) > ENUMERATED:
        return False
    return bool(np.all(np.any(_holds(conditions, moving), axis=list(moving).index(along))))


def operations(stage: Stage) -> int:
    """Arithmetic operations at one point of a stage where its term counts, a multiply-add as 2."""
    _, term = counted(stage)
    return arithmetic(term) + (1 if stage.reducer else 0)


def is_plain(condition: Scalar) -> bool:
    """Whether a condition is made of iterators alone."""
    return all(
        isinstance(node, Var | Const | Cast)
        or (isinstance(node, Unary) and node.op in ("neg", "not"))
        or (isinstance(node, Binary) and node.op in _NUMBERS)
        for node in walk(condition)
    )


def names(condition: Scalar) -> set[str]:
    return {node.name for node in walk(condition) if isinstance(node, Var)}


def _holds(conditions: Collection[Scalar], extents: Mapping[str, int]) -> NDArray[np.bool_]:
    """Whether all conditions hold, at each point; the iterators are the dimensions."""
    shape = tuple(extents.values())
    places = np.indices(shape, np.int32, sparse=True)
    return np.broadcast_to(_all(conditions, dict(zip(extents, places, strict=True))), shape)


def _all(conditions: Collection[Scalar], values: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
    found = np.asarray(True)
    for condition in conditions:
        found = np.logical_and(found, _value(condition, values))
    return found


def _value(node: Scalar, values: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    match node:
        case Var(name=name):
            return values[name]
        case Const(value=value):
            return np.asarray(value)
        case Cast(arg=arg):
            return _value(arg, values)
        case Unary(op=op, arg=arg):
            found = _value(arg, values)
            return np.asarray(np.logical_not(found) if op == "not" else np.negative(found))
        case Binary(op=op, lhs=lhs, rhs=rhs):
            return np.asarray(_NUMBERS[op](_value(lhs, values), _value(rhs, values)))
        case _:
            raise AssertionError(f"{node} is no part of a plain condition")
