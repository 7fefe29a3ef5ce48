"""Comparisons of sums of iterators that follow from one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import gcd

from tuner.workload.affine import linear
from tuner.workload.expression import Binary, Const, Scalar


def implies(condition: Scalar, premises: Iterable[Scalar]) -> bool:
    """Whether a comparison follows from others, each taken by itself."""
    conclusion = _limit(condition)
    if conclusion is None:
        return False
    limits = [
        limit
        for limit in map(_limit, premises)
        if limit is not None and limit.moving == conclusion.moving
    ]
    if conclusion.low is not None:
        return any(limit.low is not None and limit.low >= conclusion.low for limit in limits)
    return any(
        limit.high is not None and conclusion.high is not None and limit.high <= conclusion.high
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
