"""A learning problem for cost models: times with interactions over random features, and noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.cost_model.model import Features, Groups, Vector


@dataclass(frozen=True, kw_only=True)
class LearningProblem:
    features: Features
    labels: Vector
    groups: Groups


def problem(*, seed: int, rows: int, shift: float = 0.0, noise: float = 0.03) -> LearningProblem:
    rng = np.random.default_rng(seed)
    x = rng.random((rows, 12)).astype(np.float32)
    logs = (
        2 * np.abs(x[:, 0] - 0.6 - shift)
        + 2 * np.abs(x[:, 1] - x[:, 2])
        + 1.5 * (x[:, 3] > 0.5) * x[:, 4]
        + 0.5 * x[:, 5]
    )
    seconds = np.exp(logs + noise * rng.standard_normal(rows))
    return LearningProblem(
        features=x,
        labels=(seconds.min() / seconds).astype(np.float32),
        groups=np.zeros(rows, np.int64),
    )
