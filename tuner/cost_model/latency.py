"""Seconds of kernels that nobody has tuned, from those that were promoted.

The logarithm of a kernel's time beside its estimated cycles is a Gaussian process: what
one term of the estimate costs more than its round number, what is an operator's own, and
what near extents share are sums of covariances. Its leave-one-out residuals need no
second fit (Rasmussen and Williams, Gaussian Processes for Machine Learning, 5.4.2). So the
model says how wrong it would have been about each kernel it knows, and its intervals are
as wide as those residuals ask for (conformal prediction, arXiv 2107.07511).

Trees of a few hundred kernels have no such variance, and would load XGBoost into a server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.metrics import kendall_tau
from tuner.errors import UsageError

Floats = NDArray[np.float64]

COVERAGE = 0.9  # of an interval
LEAST = 8  # kernels from which an interval can be learned
# Sum of |log2| of the ratios of extents up to which a kernel is a neighbour.
NEAR = 0.5
_BATCH = 1000  # of estimates at once
_CONSIDERED = 400  # for the next measurement, of which each pair's covariance is looked at
_PASSES = 2  # of the search for the covariances' sizes
_MULTIPLE = 16  # elements of the widest register of float32
_SHARED = 1.0  # of what all kernels have in common: the clock, above all


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What is known of a workload before it is tuned."""

    op: str | None
    words: tuple[tuple[str, object], ...]  # parameters that are no extents
    extents: Mapping[str, int]  # of the operator; empty for the notation
    flops: int
    nbytes: int
    roofline_s: float | None  # None where the target's limits are not measured
    cycles: float  # of the best config by the estimate
    shares: NDArray[np.float32]  # (terms,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A promoted kernel's time."""

    described: Description
    median_s: float
    ci95_s: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """An estimated time with an interval that holds it 90 times of 100."""

    median_s: float
    low_s: float
    high_s: float
    neighbour: int | None  # place of a measured kernel of nearly the same extents


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """How wrong a model is about kernels that it was not shown, by leaving out each."""

    kernels: int
    median_error: float  # |estimate / time - 1|
    within_10_percent: float  # share of the kernels
    coverage: float  # share whose time lay in its interval
    tau: float | None  # Kendall's, mean over operators of three kernels or more


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Standard deviations of what covaries, and over which distances; of logarithms."""

    operator: float = 0.3
    terms: float = 0.5
    work: float = 0.3
    work_scale: float = 2.0
    extents: float = 0.2
    extents_scale: float = 2.0
    noise: float = 0.05


_CHOICES: Mapping[str, tuple[float, ...]] = {
    "operator": (0.1, 0.3, 0.6),
    "terms": (0.2, 0.5, 1.0),
    "work": (0.05, 0.15, 0.3),
    "work_scale": (1.0, 2.0, 4.0),
    "extents": (0.05, 0.1, 0.2, 0.4),
    "extents_scale": (1.0, 2.0, 4.0),
    "noise": (0.02, 0.05, 0.1, 0.2),
}


class LatencyModel:
    """Learns once, from all kernels it is given; thread-safe afterwards."""

    def __init__(self, measured: Sequence[Measured]) -> None:
        """Raises UsageError for fewer than `LEAST` kernels."""
        if len(measured) < LEAST:
            raise UsageError(
                f"{len(measured)} kernels were given; an estimate learns from {LEAST} or more"
            )
        self._known = _Table([each.described for each in measured])
        times = np.array([each.median_s for each in measured])
        self._logs = np.log(times) - self._known.baseline
        widths = np.array([each.ci95_s[1] - each.ci95_s[0] for each in measured]) / times
        # A 95% interval is some four standard deviations wide.
        self._doubt = np.minimum(widths / 4, 1.0) ** 2
        self._mean = float(np.median(self._logs))
        self._sizes = self._fitted()
        covariance = self._covariance(self._sizes)
        self._inverse: Floats = _inverted(covariance)
        self._weights = self._inverse @ (self._logs - self._mean)
        self._others = self._left_out(self._inverse)
        self._scores = np.abs(self._others.residual) / self._others.deviation
        self._factor = _quantile(self._scores)
        self.accuracy = self._judged()

    def predict(self, described: Sequence[Description]) -> list[Latency]:
        """In the order of `described`; with no work, none."""
        return [
            latency
            for start in range(0, len(described), _BATCH)
            for latency in self._batch(described[start : start + _BATCH])
        ]

    def left_out(self) -> list[Latency]:
        """What all other kernels say of each, in the order that they were given.

        An interval is as wide as the others' residuals ask for.
        """
        logs = self._known.baseline + self._logs - self._others.residual
        factors = [_quantile(np.delete(self._scores, place)) for place in range(len(logs))]
        spread = np.array(factors) * self._others.deviation
        return _latencies(logs, spread, [None] * len(logs))

    def most_telling(
        self, described: Sequence[Description], weights: Sequence[float], count: int
    ) -> list[int]:
        """Places of what to measure next, the most telling first, at most `count`.

        Each is the one whose measurement would take most from the sum of the weights times
        the standard deviations of all seconds, given those before it: two that are alike
        tell little more than one. A Gaussian process needs no measurement to know by how
        much it would be surer (Krause, Singh and Guestrin, Near-Optimal Sensor Placements,
        JMLR 2008). Of many, the `_CONSIDERED` of the greatest such product are considered.
        """
        latencies = self.predict(described)
        values = np.array([latency.median_s for latency in latencies]) * np.array(weights)
        spreads = np.log([latency.high_s / latency.low_s for latency in latencies])
        places = np.argsort(-values * spreads, kind="stable")[:_CONSIDERED]
        asked, values = _Table([described[place] for place in places]), values[places]
        shared = _covariance(asked, self._known, self._sizes)
        unsure = _covariance(asked, asked, self._sizes) - shared @ self._inverse @ shared.T
        noise = self._sizes.noise**2
        chosen: list[int] = []
        while len(chosen) < min(count, len(places)):
            variances = np.maximum(np.diag(unsure), 0.0)
            explained = unsure**2 / (variances + noise)[:, None]  # (measured, of which)
            left = np.sqrt(np.maximum(variances - explained, 0.0))
            gains = ((np.sqrt(variances) - left) * values).sum(axis=1)
            gains[chosen] = -np.inf
            best = int(gains.argmax())
            chosen.append(best)
            unsure = unsure - np.outer(unsure[best], unsure[best]) / (variances[best] + noise)
        return [int(places[place]) for place in chosen]

    def _batch(self, described: Sequence[Description]) -> list[Latency]:
        asked = _Table(described)
        shared = _covariance(asked, self._known, self._sizes)  # (m, n)
        logs = asked.baseline + self._mean + shared @ self._weights
        explained = np.einsum("mn,nk,mk->m", shared, self._inverse, shared, optimize=True)
        own = _variance(asked, self._sizes)
        deviation = np.sqrt(np.maximum(own - explained, 0.0) + self._sizes.noise**2)
        spread = self._factor * deviation
        return _latencies(logs, spread, _neighbours(asked, self._known))

    def _fitted(self) -> _Sizes:
        """The sizes under which the kernels left out are likeliest, one size at a time."""
        sizes, best = _Sizes(), self._likelihood(_Sizes())
        for _ in range(_PASSES):
            for name, values in _CHOICES.items():
                for value in values:
                    changed = replace(sizes, **{name: value})
                    likelihood = self._likelihood(changed)
                    if likelihood > best:
                        sizes, best = changed, likelihood
        return sizes

    def _likelihood(self, sizes: _Sizes) -> float:
        inverse: Floats = _inverted(self._covariance(sizes))
        left_out = self._left_out(inverse)
        scores = left_out.residual / left_out.deviation
        # Student's of four degrees: a kernel that was badly tuned must not decide.
        return float(-(2.5 * np.log1p(scores**2 / 4) + np.log(left_out.deviation)).sum())

    def _covariance(self, sizes: _Sizes) -> Floats:
        return _covariance(self._known, self._known, sizes) + np.diag(self._doubt + sizes.noise**2)

    def _left_out(self, inverse: Floats) -> _LeftOut:
        diagonal = np.diag(inverse)
        residual = (inverse @ (self._logs - self._mean)) / diagonal
        return _LeftOut(residual=residual, deviation=1.0 / np.sqrt(diagonal))

    def _judged(self) -> Accuracy:
        left_out = self.left_out()
        predicted = np.array([each.median_s for each in left_out])
        true = np.exp(self._known.baseline + self._logs)
        errors = np.abs(predicted / true - 1.0)
        covered = [
            each.low_s <= seconds <= each.high_s
            for each, seconds in zip(left_out, true.tolist(), strict=True)
        ]
        taus = [
            kendall_tau(predicted[rows], true[rows])
            for rows in self._known.by_operator()
            if len(rows) >= 3
        ]
        return Accuracy(
            kernels=len(errors),
            median_error=float(np.median(errors)),
            within_10_percent=float(np.mean(errors <= 0.1)),
            coverage=float(np.mean(covered)),
            tau=float(np.mean(taus)) if taus else None,
        )


def _latencies(logs: Floats, spread: Floats, neighbours: Sequence[int | None]) -> list[Latency]:
    """Of logarithms of seconds, with what is to either side of them."""
    numbers = zip(
        np.exp(logs).tolist(),
        np.exp(logs - spread).tolist(),
        np.exp(logs + spread).tolist(),
        neighbours,
        strict=True,
    )
    return [
        Latency(median_s=mid, low_s=low, high_s=high, neighbour=near)
        for mid, low, high, near in numbers
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _LeftOut:
    """Of each kernel, by a model of all others; logarithms, (n,)."""

    residual: Floats  # true minus predicted
    deviation: Floats  # that the model expected


class _Table:
    """Descriptions as arrays, a row each."""

    def __init__(self, described: Sequence[Description]) -> None:
        self.baseline = np.log([each.cycles for each in described])
        self.shares = np.array([each.shares for each in described], np.float64)
        self.work = np.array([_work(each) for each in described])
        self.operators = np.array([each.op or "" for each in described])
        self.structures = np.array(
            [repr((each.op, each.words, tuple(each.extents))) for each in described]
        )
        self.extents = [_extents(each) for each in described]

    def by_operator(self) -> list[NDArray[np.int64]]:
        return [np.flatnonzero(self.operators == name) for name in set(self.operators)]


def _work(described: Description) -> tuple[float, float, float, float]:
    bound = described.roofline_s * 1e9 / described.cycles if described.roofline_s else 1.0
    return (
        np.log2(described.cycles),
        np.log2(described.flops + 1),
        np.log2(described.nbytes + 1),
        2 * np.log2(max(bound, 1e-3)),
    )


def _extents(described: Description) -> Floats:
    values = np.array([*described.extents.values(), 0], np.float64)
    return np.concatenate([np.log2(1 + values), (values % _MULTIPLE > 0).astype(np.float64)])


def _inverted(covariance: Floats) -> Floats:
    return np.asarray(np.linalg.inv(covariance), np.float64)


def _variance(table: _Table, sizes: _Sizes) -> Floats:
    """Of each row, before anything is known, (n,)."""
    shares: Floats = (table.shares**2).sum(axis=1)
    alike = sizes.operator**2 + sizes.work**2 + sizes.extents**2 + _SHARED**2
    return alike + sizes.terms**2 * shares


def _covariance(left: _Table, right: _Table, sizes: _Sizes) -> Floats:
    """Of each row of `left` with each of `right`, (m, n)."""
    whole = np.full((len(left.work), len(right.work)), _SHARED**2)
    whole += sizes.operator**2 * (left.operators[:, None] == right.operators)
    whole += sizes.terms**2 * left.shares @ right.shares.T
    whole += sizes.work**2 * _near(left.work, right.work, sizes.work_scale)
    for structure in set(left.structures) & set(right.structures):
        rows = np.flatnonzero(left.structures == structure)
        columns = np.flatnonzero(right.structures == structure)
        near = _near(
            np.array([left.extents[row] for row in rows]),
            np.array([right.extents[column] for column in columns]),
            sizes.extents_scale,
        )
        whole[np.ix_(rows, columns)] += sizes.extents**2 * near
    return whole


def _neighbours(asked: _Table, learned: _Table) -> list[int | None]:
    """Of each row of `asked` the nearest of `learned`, with the same operator and words."""
    nearest: list[int | None] = [None] * len(asked.extents)
    for structure in set(asked.structures) & set(learned.structures):
        columns = np.flatnonzero(learned.structures == structure)
        if not learned.operators[columns[0]]:
            continue  # of the notation, whose extents are not described
        logs = np.array([learned.extents[column] for column in columns])
        half = logs.shape[1] // 2
        for row in np.flatnonzero(asked.structures == structure):
            apart = np.abs(logs[:, :half] - asked.extents[row][:half]).sum(axis=1)
            if apart.min() <= NEAR:
                nearest[row] = int(columns[apart.argmin()])
    return nearest


def _near(left: Floats, right: Floats, scale: float) -> Floats:
    """exp(-d²/2) of each pair of rows, d in units of the scale, (m, n)."""
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * left @ right.T
    near: Floats = np.exp(-0.5 * np.maximum(squares, 0.0) / scale**2)
    return near


def _quantile(scores: Floats) -> float:
    """The score that `COVERAGE` of new ones stay below, by the rule of n + 1."""
    rank = min(ceil(COVERAGE * (len(scores) + 1)), len(scores))
    return float(np.sort(scores)[rank - 1])
