"""The nearest workload of the same operator, whose schedule is worth replaying.

The distance is the sum over numeric parameters of |log2(a / b)|, since extents matter by
ratio. All other parameters must be equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, log2

Params = Mapping[str, object]


def distance(left: Params, right: Params) -> float:
    """The distance of two workloads of one operator.

    0 for equal parameters, infinite if a dtype, layout or other word differs or a
    parameter is missing.
    """
    if set(left) != set(right):
        return inf
    return sum(_log_ratio(value, right[name]) for name, value in left.items())


def _log_ratio(left: object, right: object) -> float:
    if left == right:
        return 0.0
    for value in (left, right):
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            return inf
    return abs(log2(left / right))  # type: ignore[operator]  # both are numbers


def nearest(params: Params, candidates: Iterable[tuple[str, Params]]) -> str | None:
    """The name of the candidate with the nearest parameters, the first of equals.

    None if no candidate is comparable.
    """
    best, least = None, inf
    for name, candidate in candidates:
        apart = distance(params, candidate)
        if apart < least:
            best, least = name, apart
    return best
