"""Transfer: what was measured on other workloads warms up the model of a new one.

An opinion formed on the history ranks the first batch; from then on a local model learns what it missed. The history's say fades
as 2^(-n/64) with the number n of local trials, the schedule of AutoTVM (arXiv 1805.08166, section 4), because after a few batches
the workload's own times know better.

That opinion is an estimate of cycles whose terms got their costs from the history: few numbers that mean the same for
every operator carry further than trees, which learn workloads by heart (docs/search.md has both).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tuner.cost_model import calibration
from tuner.cost_model.cycles import ROUND
from tuner.cost_model.model import Features, Groups, Vector
from tuner.cost_model.ranker import Ranker, RankerOptions
from tuner.errors import UsageError

_HALF_LIFE = 64.0  # local trials at which the history's say is halved
_SHARPNESS = 10.0  # of the estimate's logarithms as margins of pairs: a tenth of the time less is nearly three to one


@dataclass(frozen=True, kw_only=True)
class Past:
    """Trials of one workload, with the features of the same version."""

    workload: str  # its key
    features: Features  # (n, F)
    labels: Vector  # (n,), best/median within the workload, own failures 0


class Prior:
    """The estimate of cycles, its costs calibrated on what was measured; before `fit` its terms have their round costs.

    The last columns of the features are the terms.
    """

    def __init__(self) -> None:
        self._costs = ROUND

    def fit(self, parts: Sequence[Past]) -> None:
        """On workloads with at least one trial each, all weighing alike."""
        units = [calibration.units_of(past.features, len(ROUND)) for past in parts]
        self._costs = calibration.fit([(own, past.labels.astype(np.float64)) for own, past in zip(units, parts, strict=True)])

    def predict(self, features: Features) -> Vector:
        scores: Vector = (-_SHARPNESS * self.log_cycles(features)).astype(np.float32)
        return scores

    def log_cycles(self, features: Features) -> calibration.Floats:
        """Logarithm of the estimated cycles, shape (n,). Raises UsageError for features without the terms."""
        if features.shape[1] < len(ROUND):
            raise UsageError(
                f"{features.shape[1]} features hold no {len(ROUND)} terms; they belong to another version of the features"
            )
        return calibration.estimate(calibration.units_of(features, len(ROUND)), self._costs)

    def save(self) -> bytes:
        """JSON of the costs."""
        return json.dumps({"costs": self._costs.tolist()}).encode()

    def load(self, data: bytes) -> None:
        """Takes up what `save` gave. Raises UsageError for anything else."""
        try:
            costs = np.array(json.loads(data)["costs"], np.float64)
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{len(data)} bytes are not the costs of an estimate: {error}") from error
        if costs.shape != ROUND.shape or not (np.isfinite(costs) & (costs > 0)).all():
            raise UsageError(f"costs of {costs.shape[0] if costs.ndim else 0} terms; this version has {len(ROUND)}, all positive")
        self._costs = costs


def train_on(history: Sequence[Past]) -> Prior:
    """A prior of all workloads of the history, each weighing alike however many trials it has; of round costs when there are
    none."""
    prior = Prior()
    parts = [past for past in history if len(past.labels)]
    widths = {past.features.shape[1] for past in parts}
    if len(widths) > 1:
        raise UsageError(f"history mixes features of {sorted(widths)} columns; keep records of one version of the features")
    if parts:
        prior.fit(parts)
    return prior


class Opinion(Protocol):
    """What ranks before anything of the workload is measured: a history, or an estimate alone."""

    def predict(self, features: Features) -> Vector: ...


class TransferRanker:
    """A `CostModel`: an opinion from elsewhere, corrected by a local ranker."""

    def __init__(self, prior: Opinion, options: RankerOptions | None = None) -> None:
        self._prior, self._local = prior, Ranker(options)
        self._share, self._offset = 1.0, 0.0

    @property
    def trained(self) -> bool:
        return True

    def fit(self, features: Features, labels: Vector, groups: Groups) -> None:
        self._share = 2.0 ** (-len(labels) / _HALF_LIFE)
        before = self._prior.predict(features)
        self._offset = float(before.mean())  # only order matters; centred, the local trees need not learn a constant
        self._local.fit(features, labels, groups, margin=self._share * (before - self._offset))
        self._local.note(share=self._share, offset=self._offset)

    def predict(self, features: Features) -> Vector:
        scores: Vector = self._share * (self._prior.predict(features) - self._offset) + self._local.predict(features)
        return scores

    def save(self) -> bytes:
        """The local model; the history's is saved where it was trained, once for all that use it."""
        return self._local.save()

    def load(self, data: bytes) -> None:
        self._local.load(data)
        notes = self._local.notes()
        self._share, self._offset = notes.get("share", 1.0), notes.get("offset", 0.0)
