"""What trials of other workloads and of other GPUs teach: costs of the estimate's terms.

As on CPUs, few numbers that mean the same everywhere carry further than trees. Trees
learn what these miss of workloads of the operator that is to be ranked, where there are
several; they see the device's constants too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.cost_model.cuda.resources import COLUMNS
from tuner.cost_model.cuda.terms import COSTS, DEVICE_NAMES
from tuner.cost_model.history import HISTORY_TREES, Past, restored, stored
from tuner.cost_model.model import Features, Vector
from tuner.cost_model.ranker import Ranker
from tuner.errors import UsageError

FEATURE_VERSION = 1  # of the meaning of the columns; what was learned is stored with it
# Of `CudaDescription`: what a kernel takes, which costs nothing until a history says so,
# and the terms; then the estimate and the device.
PRICED = COLUMNS + len(COSTS)
WIDTH = PRICED + 1 + len(DEVICE_NAMES)
_ROUND = np.concatenate([np.zeros(COLUMNS), COSTS])
SHARPNESS = 3.0  # of a doubling as the margin of a pair: half the time is twenty to one
# Of a cost: one doubling away from its round one must lessen the mean squared error, in
# doublings, by the square of this.
STIFFNESS = 0.2


class CudaPrior:
    """The estimate, its costs calibrated on what was measured, corrected by trees."""

    def __init__(self) -> None:
        self._costs = _ROUND
        self._trees = Ranker(HISTORY_TREES)

    def calibrate(self, parts: Sequence[Past]) -> None:
        """Costs of workloads with at least one trial each, all weighing alike.

        Ridge regression (Hoerl and Kennard, 1970) of log2(time) within each workload,
        around the round costs.
        """
        curvature = STIFFNESS**2 * np.eye(PRICED)
        slope = np.zeros(PRICED)
        for past in parts:
            timed = past.labels > 0
            if timed.any():
                terms = past.features[timed, :PRICED].astype(np.float64)
                missed = -np.log2(past.labels[timed].astype(np.float64)) - terms @ _ROUND
                terms -= terms.mean(axis=0)
                curvature += terms.T @ terms / len(terms)
                slope += terms.T @ missed / len(terms)
        self._costs = _ROUND + np.linalg.solve(curvature, slope)

    def correct(self, parts: Sequence[Past]) -> None:
        """Trees of what the estimate misses of workloads with at least one trial each."""
        features, labels = (
            np.concatenate([past.features for past in parts]),
            np.concatenate([past.labels for past in parts]),
        )
        groups = np.repeat(np.arange(len(parts)), [len(past.labels) for past in parts])
        self._trees.fit(features, labels, groups, margin=self.predict(features))

    def predict(self, features: Features) -> Vector:
        """Of a description, whatever columns follow it."""
        described = features[:, :WIDTH]
        doublings = described[:, :PRICED] @ self._costs.astype(np.float32)
        scores: Vector = -np.float32(SHARPNESS) * doublings
        return scores + self._trees.predict(described) if self._trees.trained else scores

    def save(self) -> bytes:
        """What `stored` makes of the costs and of the trees."""
        return stored(self._costs, self._trees)

    def load(self, data: bytes) -> None:
        """Takes up what `save` gave. Raises UsageError for anything else."""
        costs, trees = restored(data)
        if costs.shape != _ROUND.shape or not np.isfinite(costs).all():
            raise UsageError(f"costs of shape {costs.shape}; this version has {PRICED}, all finite")
        self._costs, self._trees = costs, trees
