"""How much faster the best kernel is expected to be after n more trials, and their cost.

The gain in log(time) is the average of two estimates:

* extreme values: the fastest tenth of the last trials are taken as exceedances over a
  threshold with a generalised Pareto tail of shape ξ and scale σ, fitted by moments
  (Hosking & Wallis 1987) with ξ held to [-1, 0], as no kernel is infinitely fast. The
  best of N trials then stands at u + σ/ξ·((N·p)^ξ - 1), p the share over the threshold,
  and the gain is the difference between N + n and N;
* recent slope: records of a search come at a rate that falls with the number of trials,
  so the gain of the last half of the trials is scaled by log((N + n)/N) / log 2.

A search that learns does better than its past draws, and one that has converged does
worse. The average errs less than either estimate. The gain never passes the roofline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, inf, log

import numpy as np

_LEAST = 16  # timed trials below which there is no expectation
# Last trials of which the tail is taken. The search moves, so older trials say little of
# what it will draw.
_WINDOW = 256
_TAIL = 0.1  # share of the trials that is the tail
_SHAPES = (-1.0, 0.0)  # range of the shape ξ


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What further trials are expected to bring."""

    trials: int  # further ones
    gain: float  # best time now over best time then, minus 1; 0.004 reads "+0.4%"
    seconds: float  # wall time they will take at the present rate

    def __str__(self) -> str:
        return f"next {self.trials} trials: +{100 * self.gain:.1f}%, {self.seconds:.0f} s"


def expect(
    seconds: Sequence[float | None],
    *,
    trials: int,
    seconds_per_trial: float,
    floor_s: float | None = None,
) -> Expectation | None:
    """The expectation of `trials` more trials; None while too few were timed.

    `seconds` has the median times of all trials so far, in their order, None for a
    failure. `floor_s` is the roofline's time, which no kernel can beat.
    """
    logs = np.array([-log(value) if value is not None else -inf for value in seconds])
    timed = logs[np.isfinite(logs)]
    if len(timed) < _LEAST:
        return None
    gain = 0.5 * (_tail_gain(logs[-_WINDOW:], trials) + _slope_gain(logs, trials))
    if floor_s is not None:
        gain = min(gain, max(0.0, -log(floor_s) - float(timed.max())))
    return Expectation(trials=trials, gain=expm1(gain), seconds=trials * seconds_per_trial)


def _tail_gain(logs: np.ndarray[tuple[int], np.dtype[np.float64]], trials: int) -> float:
    """The gain by extreme values. `logs` are -log(seconds), -inf for failures."""
    count = len(logs)
    timed = np.sort(logs[np.isfinite(logs)])
    over = max(5, int(_TAIL * len(timed)))
    if over >= len(timed):
        return 0.0
    excess = timed[-over:] - timed[-over - 1]
    mean, variance = float(excess.mean()), float(excess.var())
    if mean <= 0 or variance <= 0:
        return 0.0
    ratio = mean * mean / variance
    shape = float(np.clip(0.5 * (1.0 - ratio), *_SHAPES))
    scale = mean * (1.0 - shape)
    share = over / count
    return _level(scale, shape, (count + trials) * share) - _level(scale, shape, count * share)


def _level(scale: float, shape: float, exceedances: float) -> float:
    """The expected maximum of so many exceedances, above the threshold."""
    if abs(shape) < 1e-6:
        return scale * log(exceedances)
    return scale / shape * (float(exceedances**shape) - 1.0)


def _slope_gain(logs: np.ndarray[tuple[int], np.dtype[np.float64]], trials: int) -> float:
    """The gain by the recent slope."""
    best = np.maximum.accumulate(logs)
    before = best[len(best) // 2 - 1]
    if not np.isfinite(before):
        return 0.0
    return float(best[-1] - before) * log(1.0 + trials / len(best)) / log(2.0)
