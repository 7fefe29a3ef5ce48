"""What a compiler will say of a GPU's candidate, before it is compiled: a sketch's
estimate corrected by what was said of others.

From registers follows how many warps hide each other's waiting, which an estimate of
products does not see; and code that spills is slow wherever it lies. Both are learned
from trials alone, so that the same trials lead to the same forecast.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.model import Features, Vector
from tuner.cost_model.ranker import Regressor
from tuner.cost_model.validity import ValidityFilter
from tuner.measure.gpu.resources import Resources

# the first of the features: log2 of registers of a thread, log2 of resident warps of a
# multiprocessor
COLUMNS = 2
_LEAST = 8  # candidates whose figures are known, before anything is corrected
# Of 320 random kernels of eight operators, compiled for sm_90, three spilled 328 bytes
# and more and four 24 and less; a loop that keeps a few numbers aside is no slower for
# it.
SPILLED_BYTES = 64


class ResourceForecast:
    """Corrects a sketch's figures by what compilers said of other candidates."""

    def __init__(self, *, seed: int = 0) -> None:
        self._seed = seed
        self._corrections: list[Regressor] = []
        self._spills = ValidityFilter(seed=seed)

    def fit(self, features: Features, reported: Sequence[Resources | None]) -> None:
        """Learns anew from all rows.

        Features are as they were before any correction; `reported` has None for a
        candidate that was not built.
        """
        built = [(row, each) for row, each in enumerate(reported) if each is not None]
        rows: NDArray[np.int64] = np.array([row for row, _ in built], np.int64)
        resources = [each for _, each in built]
        self._corrections = []
        if len(rows) < _LEAST:
            return
        figures = np.log2(
            np.array(
                [(max(each.registers, 1), max(each.resident_warps, 1)) for each in resources],
                np.float32,
            )
        )
        for column in range(COLUMNS):
            correction = Regressor(seed=self._seed)
            correction.fit(features[rows], figures[:, column] - features[rows, column])
            self._corrections.append(correction)
        spills = [each.spill_bytes >= SPILLED_BYTES for each in resources]
        self._spills.fit(features[rows], np.array(spills, np.float32))

    def corrected(self, features: Features) -> Features:
        """The features with the first columns as they are expected to be."""
        if not self._corrections:
            return features
        corrected = features.copy()
        for column, correction in enumerate(self._corrections):
            corrected[:, column] += correction.predict(features)
        return corrected

    def penalty(self, features: Features) -> Vector:
        """log(probability that the candidate does not spill much), shape (n,).

        As `ValidityFilter.penalty`, of features before any correction.
        """
        return self._spills.penalty(features)
