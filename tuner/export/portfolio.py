"""Plans of portfolios: any number of rows computed by kernels for a few fixed numbers.

A kernel for b rows serves m rows as one of several blocks. Where fewer than b rows are
left it works on padded copies, or computes rows a second time. So the fastest plan for m
rows is a shortest path, whatever the kernels' times are. The extents worth a kernel are
chosen by the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log

MOST_KERNELS = 8
MOST_ROWS = 1 << 16  # the plan has a byte for each number of rows
JUDGED = 2048  # most numbers of rows by which a choice of extents is judged: about a second
CANDIDATES = 40  # extents that are considered, spread evenly over the logarithm of the range

# Of rows that are copied because they are padded or not aligned, read and written. The
# figure is cautious, because padding should be the exception.
COPY_BYTES_PER_S = 8e9

Seconds = Callable[[int], float]
"""Seconds as a function of the number of rows."""
Traffic = Mapping[int, float]
"""How often which number of rows is called for, in any unit; above 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan:
    """The fastest sequence of kernels for each number of rows."""

    # For each number of rows left, from 0, the position of the kernel that is called
    # next. The entry for 0 rows has no meaning.
    first: tuple[int, ...]
    seconds: tuple[float, ...]  # for each number of rows, of the whole sequence


def plan_rows(kernels: Sequence[tuple[int, float]], high: int, copy_s: Seconds) -> RowPlan:
    """The fastest plan for each number of rows up to `high`.

    `kernels` has pairs of rows and seconds of a call. `copy_s` is the cost of padding:
    copying so many rows in and out. Raises ValueError without kernels, or for rows below 1.
    """
    if not kernels or min(rows for rows, _ in kernels) < 1:
        raise ValueError("a portfolio needs kernels of at least one row")
    first, seconds = [0], [0.0]
    for left in range(1, high + 1):
        costs = [
            cost + (seconds[left - rows] if rows <= left else copy_s(left))
            for rows, cost in kernels
        ]
        best = min(range(len(kernels)), key=costs.__getitem__)
        first.append(best)
        seconds.append(costs[best])
    return RowPlan(first=tuple(first), seconds=tuple(seconds))


def copy_s(row_bytes: Sequence[int], count: int) -> float:
    """Seconds of copying so many rows in and out; `row_bytes` has each tensor's."""
    return 2 * count * sum(row_bytes) / COPY_BYTES_PER_S


def interpolated(low: int, high: int, low_s: float, high_s: float) -> Seconds:
    """Seconds as a linear function of the number of rows, by its values at both ends."""
    slope = (high_s - low_s) / (high - low)
    return lambda rows: low_s + slope * (rows - low)


def worst_regret(
    kernels: Mapping[int, float],
    low: int,
    high: int,
    ideal_s: Seconds,
    copy_s: Seconds,
    traffic: Traffic | None = None,
) -> tuple[float, float]:
    """The worst and the mean regret of the plan over the range, or over the traffic.

    The regret is the logarithm of how many times longer than ideal the plan takes.
    """
    plan = plan_rows(list(kernels.items()), high, copy_s)
    weights = traffic or dict.fromkeys(range(low, high + 1), 1.0)
    regrets = {rows: log(plan.seconds[rows] / ideal_s(rows)) for rows in weights}
    total = sum(regrets[rows] * weight for rows, weight in weights.items())
    return max(regrets.values()), total / sum(weights.values())


def choose_extents(
    low: int,
    high: int,
    ideal_s: Seconds,
    copy_s: Seconds,
    most: int = MOST_KERNELS,
    traffic: Traffic | None = None,
) -> tuple[int, ...]:
    """The numbers of rows worth a kernel, ascending.

    Chosen greedily by the least sum of worst and mean regret. `ideal_s` estimates the
    seconds of a kernel made for a number of rows, before any exists. With `traffic` the
    regret is that of the traffic; other numbers of rows are served all the same.
    """
    unit = -(-high // JUDGED)
    if unit > 1:
        # A long range is judged in coarser steps. Its plan still has every number of rows.
        coarse = choose_extents(
            max(low // unit, 1),
            high // unit,
            lambda rows: ideal_s(rows * unit),
            lambda rows: copy_s(rows * unit),
            most - 1,
            None if traffic is None else _coarser(traffic, unit, high),
        )
        busiest = {
            _step(rows, unit, high): rows
            for rows in sorted(traffic or {}, key=lambda rows: (traffic or {})[rows])
        }
        exact = (busiest.get(rows, max(rows * unit, low)) for rows in coarse)
        return tuple(sorted({high, *(rows for rows in exact if rows < high)}))
    ratio = max(high / low, 1.0)
    spread = {round(low * ratio ** (step / (CANDIDATES - 1))) for step in range(CANDIDATES)} | {
        low,
        high,
    }
    spread |= set(sorted(traffic or {}, key=lambda rows: -(traffic or {})[rows])[:CANDIDATES])
    chosen = {high: ideal_s(high)}
    while len(chosen) < min(most, len(spread)):
        tried = {
            rows: worst_regret({**chosen, rows: ideal_s(rows)}, low, high, ideal_s, copy_s, traffic)
            for rows in spread
            if rows not in chosen
        }
        best = min(tried, key=lambda rows: (sum(tried[rows]), rows))
        if (
            sum(tried[best])
            >= sum(worst_regret(chosen, low, high, ideal_s, copy_s, traffic)) - 1e-3
        ):
            break
        chosen[best] = ideal_s(best)
    return tuple(sorted(chosen))


def _coarser(traffic: Traffic, unit: int, high: int) -> Traffic:
    """The traffic counted in steps of `unit` rows."""
    coarse: dict[int, float] = {}
    for rows, weight in traffic.items():
        step = _step(rows, unit, high)
        coarse[step] = coarse.get(step, 0.0) + weight
    return coarse


def _step(rows: int, unit: int, high: int) -> int:
    return min(max(rows // unit, 1), high // unit)


def worthwhile(
    kernels: Mapping[int, float],
    low: int,
    high: int,
    copy_s: Seconds,
    most: int = MOST_KERNELS,
    traffic: Traffic | None = None,
) -> tuple[int, ...]:
    """The numbers of rows whose kernels are worth exporting, ascending, at most `most`.

    Kernels that the plan never calls are left out.
    """
    best = plan_rows(list(kernels.items()), high, copy_s).seconds
    kept = dict(kernels)
    while len(kept) > most:
        without = {
            rows: {other: cost for other, cost in kept.items() if other != rows} for rows in kept
        }
        least = min(
            without,
            key=lambda rows: sum(
                worst_regret(without[rows], low, high, best.__getitem__, copy_s, traffic)
            ),
        )
        del kept[least]
    extents = list(kept)
    used = set(plan_rows(list(kept.items()), high, copy_s).first[low:])
    return tuple(sorted(extents[place] for place in used))
