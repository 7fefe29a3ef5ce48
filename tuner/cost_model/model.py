"""The role of a cost model: it ranks candidates of one workload by features computed
from their knobs.

A score means nothing but order: the higher, the faster the candidate is expected to be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tuner.spaces.core.space import Points

Features = NDArray[np.float32]  # shape (n, F), F fixed for a version of the features
Vector = NDArray[np.float32]  # shape (n,)
Groups = NDArray[
    np.int64
]  # shape (n,), the workload each row belongs to; only rows of one group are compared
Featurizer = Callable[[Points], Features]  # a whole batch at once


class CostModel(Protocol):
    """The role that ranks candidates of a workload by their features."""

    @property
    def trained(self) -> bool:
        """Whether `predict` says anything yet."""
        ...

    def fit(self, features: Features, labels: Vector, groups: Groups) -> None:
        """Learns anew from all rows, oldest first. Labels are best/median time within
        the group, in [0, 1], failures 0."""
        ...

    def predict(self, features: Features) -> Vector:
        """Scores, shape (n,), higher is better; zeros before the model is trained."""
        ...

    def save(self) -> bytes:
        """The model as UBJ; empty before it is trained."""
        ...

    def load(self, data: bytes) -> None:
        """Takes up what `save` gave; empty bytes mean an untrained model."""
        ...
