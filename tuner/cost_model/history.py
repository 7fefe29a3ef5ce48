"""Transfer: what was measured on other workloads warms up the model of a new one.

A model of the history ranks the first batch; from then on a local model learns what the history's missed. The history's say fades
as 2^(-n/64) with the number n of local trials, the schedule of AutoTVM (arXiv 1805.08166, section 4), because after a few batches
the workload's own times know better.

The history's model is an estimate of cycles whose terms got their costs from the history: few numbers that mean the same for
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
_MOST_ROWS = 20_000  # rows a history model is trained on; more costs seconds and taught nothing on synthetic workloads
# Shallow trees, each on some features and rows: workloads are few however many their rows, and deep trees learn them by heart.
_ALONE = RankerOptions(trees=100, depth=3, learning_rate=0.08, columns=0.3, rows=0.5)
_SHARPNESS = 10.0  # of the estimate's logarithms as margins of pairs: a tenth of the time less is nearly three to one


@dataclass(frozen=True, kw_only=True)
class Past:
    """Trials of one workload, with the features of the same version."""

    workload: str  # its key
    features: Features  # (n, F)
    labels: Vector  # (n,), best/median within the workload, own failures 0


class Prior:
    """A ranker of a history: the calibrated estimate of cycles; trees where features have no terms of an estimate.

    `terms` is the number of such columns, the last ones. With them it is never without an opinion: before `fit` the terms have
    their round costs.
    """

    def __init__(self, *, terms: int = 0, options: RankerOptions | None = None) -> None:
        self._terms, self._trees = terms, Ranker(options or _ALONE)
        self._costs = ROUND

    @property
    def trained(self) -> bool:
        return self._terms > 0 or self._trees.trained

    def fit(self, parts: Sequence[Past]) -> None:
        """On workloads with at least one trial each, all weighing alike."""
        if self._terms:
            units = [calibration.units_of(past.features, self._terms) for past in parts]
            self._costs = calibration.fit([(own, past.labels.astype(np.float64)) for own, past in zip(units, parts, strict=True)])
            return
        rows = [len(past.labels) for past in parts]
        mean = sum(rows) / len(rows)
        self._trees.fit(
            np.concatenate([past.features for past in parts]),
            np.concatenate([past.labels for past in parts]),
            np.repeat(np.arange(len(parts)), rows),
            np.repeat(np.array([mean / count for count in rows], np.float32), rows),
        )

    def predict(self, features: Features) -> Vector:
        if not self._terms:
            return self._trees.predict(features)
        scores: Vector = (-_SHARPNESS * self.log_cycles(features)).astype(np.float32)
        return scores

    def log_cycles(self, features: Features) -> calibration.Floats:
        """Logarithm of the estimated cycles, shape (n,). Raises UsageError for features without the terms."""
        if not 0 < self._terms <= features.shape[1]:
            raise UsageError(
                f"{features.shape[1]} features hold no {self._terms} terms; they belong to another version of the features"
            )
        return calibration.estimate(calibration.units_of(features, self._terms), self._costs)

    def save(self) -> bytes:
        """JSON of the costs, or the trees as UBJ."""
        return json.dumps({"costs": self._costs.tolist()}).encode() if self._terms else self._trees.save()

    def load(self, data: bytes) -> None:
        """Takes up what `save` gave. Raises UsageError for anything else."""
        if not self._terms:
            self._trees.load(data)
            return
        try:
            costs = np.array(json.loads(data)["costs"], np.float64)
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{len(data)} bytes are not the costs of an estimate: {error}") from error
        if costs.shape != ROUND.shape or not (np.isfinite(costs) & (costs > 0)).all():
            raise UsageError(f"costs of {costs.shape[0] if costs.ndim else 0} terms; this version has {len(ROUND)}, all positive")
        self._costs = costs


def train_on(history: Sequence[Past], *, terms: int = 0, options: RankerOptions | None = None) -> Prior:
    """A prior of all workloads of the history, each weighing alike however many trials it has; untrained when there are none.

    The last `terms` columns of the features are those of the estimated cycles.
    """
    prior = Prior(terms=terms, options=options)
    parts = [past for past in history if len(past.labels)]
    if not parts:
        return prior
    widths = {past.features.shape[1] for past in parts}
    if len(widths) > 1:
        raise UsageError(f"history mixes features of {sorted(widths)} columns; keep records of one version of the features")
    prior.fit([_thinned(past, _MOST_ROWS // len(parts)) for past in parts])
    return prior


def _thinned(past: Past, rows: int) -> Past:
    """At most `rows` of them, evenly spaced, the order kept."""
    if len(past.labels) <= rows:
        return past
    index = np.linspace(0, len(past.labels) - 1, max(1, rows)).astype(np.int64)
    return Past(workload=past.workload, features=past.features[index], labels=past.labels[index])


class Opinion(Protocol):
    """What ranks before anything of the workload is measured: a history, or an estimate alone."""

    @property
    def trained(self) -> bool: ...

    def predict(self, features: Features) -> Vector: ...


class TransferRanker:
    """A `CostModel`: the history's ranker, corrected by a local one."""

    def __init__(self, prior: Opinion, options: RankerOptions | None = None) -> None:
        if not prior.trained:
            raise UsageError("transfer needs a trained model of the history; without one use a plain ranker")
        self._prior, self._local = prior, Ranker(options)
        self._share, self._offset = 1.0, 0.0

    @property
    def trained(self) -> bool:
        return True

    def fit(self, features: Features, labels: Vector, groups: Groups, weights: Vector | None = None) -> None:
        self._share = 2.0 ** (-len(labels) / _HALF_LIFE)
        before = self._prior.predict(features)
        self._offset = float(before.mean())  # only order matters; centred, the local trees need not learn a constant
        self._local.fit(features, labels, groups, weights, margin=self._share * (before - self._offset))
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
