"""Any number of rows from kernels for few numbers of rows: which of them, in which order, and which are worth tuning.

A kernel for b rows serves m rows as one of several blocks, or, where fewer than b are left, on padded copies (or on rows that are
computed twice, to the same values). So the best way to m rows is a shortest path, whatever the kernels' times are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log

MOST_KERNELS = 8
MOST_ROWS = 1 << 16  # the plan has a byte for each number of rows
JUDGED = 2048  # numbers of rows by which a choice of extents is judged, at most: it takes a second
CANDIDATES = 40  # extents that are tried as a kernel's, spread evenly over the logarithm of the range

Seconds = Callable[[int], float]
"""Seconds as a function of the number of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    first: tuple[int, ...]  # for each number of rows left, from 0, the kernel that comes next; position 0 means nothing
    seconds: tuple[float, ...]  # for each number of rows, all kernels together


def plan_rows(kernels: Sequence[tuple[int, float]], high: int, copy_s: Seconds) -> Plan:
    """The fastest way to each number of rows up to `high`; `kernels` are (rows, seconds of a call).

    `copy_s` is what padding costs: copying so many rows in and out. Raises ValueError without kernels, or for rows below 1.
    """
    if not kernels or min(rows for rows, _ in kernels) < 1:
        raise ValueError("a portfolio needs kernels of at least one row")
    first, seconds = [0], [0.0]
    for left in range(1, high + 1):
        costs = [cost + (seconds[left - rows] if rows <= left else copy_s(left)) for rows, cost in kernels]
        best = min(range(len(kernels)), key=costs.__getitem__)
        first.append(best)
        seconds.append(costs[best])
    return Plan(first=tuple(first), seconds=tuple(seconds))


def worst_regret(kernels: Mapping[int, float], low: int, high: int, ideal_s: Seconds, copy_s: Seconds) -> tuple[float, float]:
    """How many times longer than ideal the plan takes: over the range the worst, and the geometric mean."""
    plan = plan_rows(list(kernels.items()), high, copy_s)
    logs = [log(plan.seconds[rows] / ideal_s(rows)) for rows in range(low, high + 1)]
    return max(logs), sum(logs) / len(logs)


def choose_extents(low: int, high: int, ideal_s: Seconds, copy_s: Seconds, most: int = MOST_KERNELS) -> tuple[int, ...]:
    """The numbers of rows worth a kernel, ascending: greedily those whose plan has the least regret, the worst case first.

    `ideal_s` is what a kernel made for a number of rows would take, as far as it is known before any is.
    """
    unit = -(-high // JUDGED)
    if unit > 1:  # long ranges are judged in coarser steps; the plan itself is made for every number of rows
        coarse = choose_extents(
            max(low // unit, 1), high // unit, lambda rows: ideal_s(rows * unit), lambda rows: copy_s(rows * unit), most - 1
        )
        return tuple(sorted({high, *(max(rows * unit, low) for rows in coarse if rows * unit < high)}))
    ratio = max(high / low, 1.0)
    spread = {round(low * ratio ** (step / (CANDIDATES - 1))) for step in range(CANDIDATES)} | {low, high}
    chosen = {high: ideal_s(high)}
    while len(chosen) < min(most, len(spread)):
        tried = {
            rows: worst_regret({**chosen, rows: ideal_s(rows)}, low, high, ideal_s, copy_s)
            for rows in spread
            if rows not in chosen
        }
        best = min(tried, key=lambda rows: (sum(tried[rows]), rows))
        if sum(tried[best]) >= sum(worst_regret(chosen, low, high, ideal_s, copy_s)) - 1e-3:
            break
        chosen[best] = ideal_s(best)
    return tuple(sorted(chosen))


def worthwhile(kernels: Mapping[int, float], low: int, high: int, copy_s: Seconds, most: int = MOST_KERNELS) -> tuple[int, ...]:
    """The numbers of rows whose kernels are worth exporting, ascending: none that the plan does without, at most `most`."""
    best = plan_rows(list(kernels.items()), high, copy_s).seconds
    kept = dict(kernels)
    while len(kept) > most:
        without = {rows: {other: cost for other, cost in kept.items() if other != rows} for rows in kept}
        least = min(without, key=lambda rows: sum(worst_regret(without[rows], low, high, best.__getitem__, copy_s)))
        del kept[least]
    extents = list(kept)
    used = set(plan_rows(list(kept.items()), high, copy_s).first[low:])
    return tuple(sorted(extents[place] for place in used))
