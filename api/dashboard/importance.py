"""The importance of knobs: the share of the variance of log(time) that each explains.

This is ω² of a one-way analysis of variance (Hays 1963), clipped at 0. Unlike η² it does
not favour knobs with many values. It shows main effects only: a knob that matters only
in combination with others does not show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST = 12  # timed trials that the analysis needs


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueGroup:
    value: Any
    count: int
    best_s: float
    median_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobImportance:
    knob: str
    share: float  # of the variance, 0 to 1
    groups: Sequence[ValueGroup]  # by value


def importance(
    configs: Sequence[Mapping[str, Any]], medians_s: Sequence[float]
) -> tuple[KnobImportance, ...]:
    """The knobs with more than one value, the most important first; empty for few trials."""
    if len(configs) < LEAST:
        return ()
    logs = np.log(np.asarray(medians_s, np.float64))
    names = dict.fromkeys(name for config in configs for name in config)
    knobs = []
    for name in names:
        rows = np.array([row for row, config in enumerate(configs) if name in config], np.int64)
        values = [configs[row][name] for row in rows]
        ordered = sorted(set(values), key=_order)
        if len(ordered) < 2 or len(rows) < LEAST:
            continue
        place = {value: index for index, value in enumerate(ordered)}
        codes = np.array([place[value] for value in values], np.int64)
        knobs.append(
            KnobImportance(
                knob=name,
                share=omega_squared(codes, logs[rows]),
                groups=_groups(ordered, codes, logs[rows]),
            )
        )
    return tuple(sorted(knobs, key=lambda knob: (-knob.share, knob.knob)))


def omega_squared(codes: NDArray[np.int64], logs: NDArray[np.float64]) -> float:
    """ω² of `logs` grouped by `codes`, clipped to [0, 1]. Both have shape (n,)."""
    counts = np.bincount(codes)
    sums = np.bincount(codes, weights=logs)
    present = counts > 0
    groups, total = int(present.sum()), float(((logs - logs.mean()) ** 2).sum())
    if groups < 2 or total <= 0 or len(logs) <= groups:
        return 0.0
    between = float((counts[present] * (sums[present] / counts[present] - logs.mean()) ** 2).sum())
    noise = (total - between) / (len(logs) - groups)
    return float(np.clip((between - (groups - 1) * noise) / (total + noise), 0.0, 1.0))


def _groups(
    ordered: Sequence[Any], codes: NDArray[np.int64], logs: NDArray[np.float64]
) -> tuple[ValueGroup, ...]:
    return tuple(
        ValueGroup(
            value=value,
            count=int(mine.size),
            best_s=float(np.exp(mine.min())),
            median_s=float(np.exp(np.median(mine))),
        )
        for index, value in enumerate(ordered)
        if (mine := logs[codes == index]).size
    )


def _order(value: Any) -> tuple[int, Any]:
    """A sort key: numbers by size, then tuples, then words."""
    if isinstance(value, bool | int | float):
        return (0, value)
    return (1, tuple(map(float, value))) if isinstance(value, tuple) else (2, str(value))
