"""Transfer: what was measured on other workloads warms up the model of a new one.

An opinion formed on the history ranks the first batch; from then on a local model
learns what it missed. The history's say fades as 2^(-n/64) with the number n of local
trials, the schedule of AutoTVM (arXiv 1805.08166, section 4), because after a few
batches the workload's own times know better.

That opinion is an estimate of cycles whose terms got their costs from the history: few
numbers that mean the same for every operator carry further than trees, which learn
workloads by heart. On top of it trees learn what it missed of the workloads of the
operator that is to be ranked, where there are several. Beside the features they see the
share that each term has in the estimate, which means the same for every shape
(docs/design-notes/0006 has trees of either alone).
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from tuner.cost_model.cpu import calibration
from tuner.cost_model.cpu.cycles import ROUND_COSTS
from tuner.cost_model.model import Features, Groups, Vector
from tuner.cost_model.ranker import Ranker, RankerOptions
from tuner.errors import UsageError

_HALF_LIFE = 64.0  # local trials at which the history's say is halved
# workloads of an operator from which trees learn: of one they learn what is its own
# (docs/design-notes/0007)
AGREEING = 3
# of the estimate's logarithms as margins of pairs: a tenth of the time less is nearly
# three to one
_SHARPNESS = 10.0

# Rounds of several trees, each of other rows, and many pairs: what one draw of rows,
# pairs, or features for a split learns by chance the others do not.
HISTORY_TREES = RankerOptions(rounds=50, parallel=4, learning_rate=0.2, subsample=0.7, pairs=64)


class Opinion(Protocol):
    """What ranks before anything of the workload is measured: a history, or an estimate alone."""

    def predict(self, features: Features) -> Vector: ...


class HistoryModel(Opinion, Protocol):
    """An opinion that a history teaches."""

    def calibrate(self, parts: Sequence[Past]) -> None:
        """Learns costs from workloads with at least one trial each."""
        ...

    def correct(self, parts: Sequence[Past]) -> None:
        """Learns what the estimate misses of such workloads of one operator."""
        ...

    def save(self) -> bytes:
        """What it learned."""
        ...

    def load(self, data: bytes) -> None:
        """Takes up what `save` gave. Raises UsageError for anything else."""
        ...


Taught = TypeVar("Taught", bound=HistoryModel)


@dataclass(frozen=True, kw_only=True)
class Past:
    """Trials of one workload, with the features of the same version."""

    workload: str  # its key
    op: str | None  # its operator; None for what was written in the notation
    features: Features  # (n, F)
    labels: Vector  # (n,), best/median within the workload, own failures 0


class Prior:
    """The estimate of cycles, its costs calibrated on what was measured, corrected by
    trees that learned what it missed. Before that the terms have their round costs, and
    nothing is corrected.

    The last columns of the features are the terms.
    """

    def __init__(self) -> None:
        self._costs = ROUND_COSTS
        self._trees = Ranker(HISTORY_TREES)

    def calibrate(self, parts: Sequence[Past]) -> None:
        """Costs of workloads with at least one trial each, all weighing alike."""
        units = [
            calibration.units_of(past.features, len(ROUND_COSTS)).astype(np.float64)
            for past in parts
        ]
        self._costs = calibration.fit(
            [(own, past.labels.astype(np.float64)) for own, past in zip(units, parts, strict=True)]
        )

    def correct(self, parts: Sequence[Past]) -> None:
        """Trees of what the estimate misses of workloads with at least one trial each."""
        features, labels = (
            np.concatenate([past.features for past in parts]),
            np.concatenate([past.labels for past in parts]),
        )
        groups = np.repeat(np.arange(len(parts)), [len(past.labels) for past in parts])
        seen = self._with_shares(features, calibration.units_of(features, len(ROUND_COSTS)))
        self._trees.fit(seen, labels, groups, margin=self.predict(features))

    def predict(self, features: Features) -> Vector:
        scores: Vector = (-_SHARPNESS * self.log_cycles(features)).astype(np.float32)
        return scores

    def log_cycles(self, features: Features) -> calibration.Floats:
        """Logarithm of the estimated cycles, shape (n,). Raises UsageError for features
        without the terms."""
        if features.shape[1] < len(ROUND_COSTS):
            raise UsageError(
                f"{features.shape[1]} features hold no {len(ROUND_COSTS)} terms; they belong to "
                f"another version of the features"
            )
        units = calibration.units_of(features, len(ROUND_COSTS))
        loaded = calibration.estimate(units, self._costs)
        return (
            loaded - self._trees.predict(self._with_shares(features, units)) / _SHARPNESS
            if self._trees.trained
            else loaded
        )

    def _with_shares(self, features: Features, units: Features) -> Features:
        """The features, and the share of each term in the estimated cycles, shape (n, F
        + terms)."""
        cycles = units * self._costs.astype(np.float32)
        return np.concatenate(
            [features, cycles / np.maximum(cycles.sum(axis=1, keepdims=True), 1.0)], axis=1
        )

    def save(self) -> bytes:
        """What `stored` makes of the costs and of the trees."""
        return stored(self._costs, self._trees)

    def load(self, data: bytes) -> None:
        """Takes up what `save` gave. Raises UsageError for anything else."""
        costs, trees = restored(data)
        if costs.shape != ROUND_COSTS.shape or not (np.isfinite(costs) & (costs > 0)).all():
            raise UsageError(
                f"costs of {costs.shape[0] if costs.ndim else 0} terms; this version has "
                f"{len(ROUND_COSTS)}, all positive"
            )
        self._costs, self._trees = costs, trees


def stored(costs: calibration.Floats, trees: Ranker) -> bytes:
    """JSON of the costs and of the trees, in UBJ and base64."""
    return json.dumps({"costs": costs.tolist(), "trees": b64encode(trees.save()).decode()}).encode()


def restored(data: bytes) -> tuple[calibration.Floats, Ranker]:
    """What `stored` was given. Raises UsageError for anything else."""
    trees = Ranker(HISTORY_TREES)
    try:
        loaded = json.loads(data)
        costs = np.array(loaded["costs"], np.float64)
        trees.load(b64decode(loaded["trees"]))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{len(data)} bytes are not the costs of an estimate: {error}") from error
    return costs, trees


def train_on(history: Sequence[Past], op: str | None = None) -> Prior:
    """A prior of CPUs, taught."""
    return taught(Prior(), history, op)


def taught(prior: Taught, history: Sequence[Past], op: str | None = None) -> Taught:
    """The prior, calibrated on all workloads of the history, of round costs when there
    are none; corrected by those of the operator `op`, which is to be ranked, where they
    are several. Raises UsageError for features of several widths."""
    parts = [past for past in history if len(past.labels)]
    widths = {past.features.shape[1] for past in parts}
    if len(widths) > 1:
        raise UsageError(
            f"history mixes features of {sorted(widths)} columns; keep records of one version "
            f"of the features"
        )
    if parts:
        prior.calibrate(parts)
    alike = [past for past in parts if past.op == op is not None]
    if len(alike) >= AGREEING:
        prior.correct(alike)
    return prior


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
        self._offset = float(
            before.mean()
        )  # only order matters; centred, the local trees need not learn a constant
        self._local.fit(features, labels, groups, margin=self._share * (before - self._offset))
        self._local.note(share=self._share, offset=self._offset)

    def predict(self, features: Features) -> Vector:
        scores: Vector = self._share * (
            self._prior.predict(features) - self._offset
        ) + self._local.predict(features)
        return scores

    def save(self) -> bytes:
        """The local model; the history's is saved where it was trained, once for all
        that use it."""
        return self._local.save()

    def load(self, data: bytes) -> None:
        self._local.load(data)
        notes = self._local.notes()
        self._share, self._offset = notes.get("share", 1.0), notes.get("offset", 0.0)
