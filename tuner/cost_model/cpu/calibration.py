"""What the terms of the estimated cycles cost on a machine.

The costs are learned from what was measured there on any workloads. A sum of terms with
one cost each has few numbers to learn, and they mean the same for every operator. So a
few workloads teach an order of the configs of another (docs/design-notes/0005 has how well).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.cpu.cycles import ROUND_COSTS
from tuner.cost_model.model import Features

Floats = NDArray[np.float64]

# Of the round costs: one e times as high must lessen the mean squared error by the square
# of this.
_STIFFNESS = 0.2
_STEPS = 40
_ENOUGH = 1e-5  # relative gain of a step below which the costs are learned
# Of a kernel's estimate relative to the workload's fastest, so that a logarithm exists.
_FLOOR = 1e-6
_MOST_ROWS = 1000  # of a workload; more cost time and teach forty numbers nothing


def fit(history: Sequence[tuple[Floats, Floats]], start: Floats = ROUND_COSTS) -> Floats:
    """Costs of the terms, shape (T,), all positive. A workload of the history is its
    terms (n, T) and its labels (n,), best over median time, failures 0.

    Minimises the squared error of log(estimate) against log(time), each workload
    centred and weighing alike, plus what holds the costs near `start`, by
    Levenberg-Marquardt steps on the logarithms of the costs.
    """
    parts = [_prepared(terms, labels) for terms, labels in history]
    parts = [part for part in parts if len(part[1]) > 1]
    logs = np.log(start)
    error, gradient, curvature = _quadratic(parts, logs, start)
    damping = 1e-3
    for _ in range(_STEPS):
        step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), -gradient)
        moved = logs + np.clip(step, -1.0, 1.0)
        trial = _quadratic(parts, moved, start)
        if trial[0] < error:
            gain = 1.0 - trial[0] / error
            logs, (error, gradient, curvature) = moved, trial
            damping = max(damping / 4, 1e-9)
            if gain < _ENOUGH:
                break
        else:
            damping *= 8
            if damping > 1e6:
                break
    costs: Floats = np.exp(logs)
    return costs


def units_of(features: Features, terms: int) -> Features:
    """Units of the terms, shape (n, terms), from features whose last columns are log2(1
    + units)."""
    units: Features = np.exp2(features[:, features.shape[1] - terms :]) - 1
    return units


def estimate(terms: NDArray[np.floating], costs: Floats) -> Floats:
    """log of the estimated cycles, shape (n,)."""
    logs: Floats = np.log(np.maximum(terms @ costs, 1.0))
    return logs


def _prepared(terms: Floats, labels: Floats) -> tuple[Floats, Floats]:
    """Terms of the timed rows, scaled to the workload's own size, and the logarithms of
    their times."""
    timed = np.flatnonzero(labels > 0)
    if len(timed) > _MOST_ROWS:
        timed = timed[np.linspace(0, len(timed) - 1, _MOST_ROWS).astype(np.int64)]
    kept = terms[timed].astype(np.float64)
    scale = np.median(kept @ ROUND_COSTS) if len(kept) else 1.0
    return kept / max(float(scale), 1.0), -np.log(labels[timed].astype(np.float64))


def _quadratic(
    parts: Sequence[tuple[Floats, Floats]], logs: Floats, start: Floats
) -> tuple[float, Floats, Floats]:
    """Error, gradient and Gauss-Newton curvature at these logarithms of the costs."""
    away = _STIFFNESS * (logs - np.log(start))
    error, gradient = float(away @ away), _STIFFNESS * away
    curvature = np.eye(len(logs)) * _STIFFNESS**2
    for terms, times in parts:
        each = terms * np.exp(logs)
        total = each.sum(axis=1) + _FLOOR
        residual = np.log(total) - times
        slope = each / total[:, None]
        residual, slope = residual - residual.mean(), slope - slope.mean(axis=0)
        error += float(residual @ residual) / len(times)
        gradient = gradient + slope.T @ residual / len(times)
        curvature = curvature + slope.T @ slope / len(times)
    return error, gradient, curvature
