"""Stages that an expression's outputs do not depend on, though they are computed from them.

A stable softmax subtracts each row's greatest value, and would give the same if it
subtracted anything else. The derivative by such a stage is zero, so it need not be
computed. A shift of the stage by t adds a multiple of t to some tensors, and multiplies
others by a power of exp(t); where neither reaches an output, nothing depends on t.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tuner.workload.expression import (
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
    reads,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """What a shift by t[indices] does: adds degree * t, or multiplies by exp(degree * t)."""

    kind: Literal["adds", "multiplies"]
    degree: float
    # the index of t along each of its dimensions: a dimension of the tensor, by its number,
    # or in a stage's right-hand side an iterator
    indices: tuple[int | str, ...]


class _UnknownChange(Exception):
    """The shift does something else."""


def is_arbitrary(expression: Expression, name: str) -> bool:
    """Whether any shift of a stage's elements leaves all outputs as they are."""
    stages = list(expression.stages)
    names = [stage.name for stage in stages]
    start = names.index(name)
    rank = len(stages[start].axes)
    changes = {name: _Change(kind="adds", degree=1, indices=tuple(range(rank)))}
    try:
        for stage in stages[start + 1 :]:
            change = _of_stage(stage, changes)
            if change is not None:
                changes[stage.name] = change
    except _UnknownChange:
        return False
    return not any(output in changes for output in expression.outputs)


def _of_stage(stage: Stage, changes: Mapping[str, _Change]) -> _Change | None:
    change = _of_scalar(stage.body, changes)
    if change is None:
        return None
    axes = [axis.name for axis in stage.axes]
    passes = stage.reducer in (None, "max", "min") or (
        stage.reducer == "sum" and change.kind == "multiplies"
    )
    if not passes or not set(change.indices) <= set(axes):
        raise _UnknownChange
    return replace(change, indices=tuple(axes.index(str(index)) for index in change.indices))


def _of_scalar(node: Scalar, changes: Mapping[str, _Change]) -> _Change | None:
    """What happens to a scalar; None where nothing does."""
    if not any(read.tensor in changes for read in reads(node)):
        return None
    match node:
        case Read(tensor=tensor, indices=indices, pad=None) if tensor in changes:
            change = changes[tensor]
            along = [indices[int(dimension)] for dimension in change.indices]
            names = tuple(index.name for index in along if isinstance(index, Var))
            if len(names) == len(along) and not any(
                read.tensor in changes for index in indices for read in reads(index)
            ):
                return replace(change, indices=names)
        case Cast(dtype=dtype, arg=arg) if "float" in dtype:
            return _of_scalar(arg, changes)
        case Unary(op=op, arg=arg):
            return _of_function(op, _of_scalar(arg, changes))
        case Binary(op="add" | "sub" as op, lhs=lhs, rhs=rhs):
            return _of_sum(op, _of_scalar(lhs, changes), _of_scalar(rhs, changes))
        case Binary(op="mul" | "div" as op, lhs=lhs, rhs=rhs):
            return _of_product(op, lhs, rhs, changes)
        case Select(cond=cond, then=then, other=other) if _of_scalar(cond, changes) is None:
            first, second = _of_scalar(then, changes), _of_scalar(other, changes)
            if first == second:
                return first
    raise _UnknownChange


def _of_function(op: str, change: _Change | None) -> _Change | None:
    match op, change:
        case _, None:
            return None
        case "exp", _Change(kind="adds"):
            return replace(change, kind="multiplies")
        case "log", _Change(kind="multiplies"):
            return replace(change, kind="adds")
        case "neg", _Change(kind="adds"):
            return replace(change, degree=-change.degree)
        case "neg", _Change(kind="multiplies"):
            return change
    raise _UnknownChange


def _of_sum(op: str, left: _Change | None, right: _Change | None) -> _Change | None:
    if left == right and left is not None and left.kind == "multiplies":
        return left
    return _joined(left, right, "adds", 1 if op == "add" else -1)


def _of_product(
    op: str, lhs: Scalar, rhs: Scalar, changes: Mapping[str, _Change]
) -> _Change | None:
    left, right = _of_scalar(lhs, changes), _of_scalar(rhs, changes)
    if left is not None and left.kind == "adds" and isinstance(rhs, Const) and op == "mul":
        return replace(left, degree=left.degree * float(rhs.value))
    return _joined(left, right, "multiplies", 1 if op == "mul" else -1)


def _joined(
    left: _Change | None, right: _Change | None, kind: Literal["adds", "multiplies"], sign: int
) -> _Change | None:
    """The change of a sum of two terms, or a product of two factors, or their inverses."""
    given = [change for change in (left, right) if change is not None]
    if any(change.kind != kind or change.indices != given[0].indices for change in given):
        raise _UnknownChange
    degree = (left.degree if left else 0.0) + sign * (right.degree if right else 0.0)
    return replace(given[0], degree=degree) if degree else None
