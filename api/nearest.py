"""Which known kernel's schedule is worth replaying for a workload that has none: the
nearest one of its operator.

Distance is the sum over numeric parameters of |log2(a / b)|, as extents matter by
ratio; all other parameters must be equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, log2

Params = Mapping[str, object]


def distance(wanted: Params, known: Params) -> float:
    """0 for equal parameters, infinite where a dtype, layout or other word differs or a
    parameter is missing."""
    if set(wanted) != set(known):
        return inf
    total = 0.0
    for name, value in wanted.items():
        other = known[name]
        if value == other:
            continue
        if (
            not isinstance(value, int | float)
            or not isinstance(other, int | float)
            or isinstance(value, bool)
            or isinstance(other, bool)
        ):
            return inf
        if value <= 0 or other <= 0:
            return inf
        total += abs(log2(value / other))
    return total


def nearest(wanted: Params, known: Iterable[tuple[str, Params]]) -> str | None:
    """The name whose parameters are nearest to `wanted`; the first of equals; None
    where none is comparable."""
    best, least = None, inf
    for name, params in known:
        away = distance(wanted, params)
        if away < least:
            best, least = name, away
    return best
