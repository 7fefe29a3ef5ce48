"""Points to try first where nothing was measured: an estimate's favourite and its rivals.

The favourites of an estimate resemble each other. If it is wrong about what a copy or a
vectorised loop costs on a machine, their times do not show it. A rival is the best point
with another value of one choice: an operand packed or not, one loop vectorised or
another, a reduction in one block or several. Rivals whose estimates are close to the
favourite's are tried early. Of several algorithms the best point of each is tried, however
slow its estimate: what an estimate knows of one kind of instructions says little about
another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tuner.cost_model.cpu.calibration import Floats
from tuner.cost_model.history import Prior
from tuner.cost_model.model import Featurizer, Vector
from tuner.search.annealing import Annealing, AnnealingOptions
from tuner.search.domain import Domain
from tuner.search.pool import Pool, Pools
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.core.space import Knob, Points

COUNT = 4  # of a first batch of eight
BEHIND = 0.25  # logarithm of the estimated time: how wrong the estimate may be about a choice
MOST = 8  # values looked at, those of the first choices
# Of each look, a twenty-fifth of a plan's effort: a good point will do, it need not be the best.
OPTIONS = AnnealingOptions(chains=192, steps=8)
REFERENCE = 512  # random points whose estimates set the scale
# Points that a look keeps: of equally good ones it then takes the one that a search takes,
# not the one it met first.
EQUALS = 8
_APART = 100.0  # added to the logarithm for points with another value: worse than any with it

_Choice = tuple[int, Sequence[int]]  # a column of points, and the values it may have
_Estimated = tuple[float, tuple[int, ...]]  # logarithm of the estimated time, and the point


def alternatives(
    domain: Domain,
    featurizer: Featurizer,
    prior: Prior,
    algorithms: Sequence[Sequence[int]] = (),
    *,
    seed: int,
    count: int = COUNT,
) -> Points:
    """The favourite of `prior` and up to `count` points that differ from it in a choice.

    Shape (k, knobs). Of several algorithms the best point of each comes first, then the
    most promising points. `algorithms` has for each algorithm the indices of its
    combinations among the first knob's values. For a `count` of 0 no rival is looked for, which
    takes a fraction of the time; the favourite is the same.
    """
    looks = _Looks(domain, featurizer, prior, seed)
    knobs = domain.space.knobs
    # Of its own algorithm too: what so short a look takes for the favourite need not be
    # of the one that a search will favour.
    separate = algorithms if len(algorithms) > 1 else []
    (least, favourite), *of_algorithms = looks.best_of(
        [(0, range(len(knobs[0].values))), *((0, places) for places in separate)]
    )
    if not count:
        return np.array([favourite], np.int32)
    of_each = [point for _, point in of_algorithms]
    others = [
        (column, (value,))
        for column, knob in enumerate(knobs)
        for value in _kinds(knob)
        if value != favourite[column]
    ]
    near = {
        candidate for candidate in looks.best_of(others[:MOST]) if candidate[0] < least + BEHIND
    }
    points = dict.fromkeys((favourite, *of_each, *(point for _, point in sorted(near))))
    return np.array([*points][: 1 + count], np.int32).reshape(-1, len(knobs))


class _Looks:
    """Short searches for the best points with given values, by a prior alone."""

    def __init__(self, domain: Domain, featurizer: Featurizer, prior: Prior, seed: int) -> None:
        self._domain, self._featurizer, self._prior = domain, featurizer, prior
        self._rng = np.random.default_rng((seed, 0))
        self._reference = domain.sample(self._rng, REFERENCE)
        self._times = prior.log_cycles(featurizer(self._reference))
        self._mean, self._spread = float(self._times.mean()), float(self._times.std()) or 1.0

    def best_of(self, choices: Sequence[_Choice]) -> list[_Estimated]:
        """The best point of each choice.

        Where a look meets no such point, its time is far behind all others. The chains of
        all looks move together: estimating few points takes nearly as long as many.
        """
        if not choices:
            return []
        pools = [Pool(self._domain, capacity=EQUALS, tried=np.zeros(0, np.uint64)) for _ in choices]
        for pool, choice in zip(pools, choices, strict=True):
            pool.add(self._reference, self._standings(self._reference, self._times, choice))

        def score(points: Points) -> Vector:
            log_times = self._prior.log_cycles(self._featurizer(points))
            parts, times = np.split(points, len(choices)), np.split(log_times, len(choices))
            looks = zip(parts, times, choices, strict=True)
            return np.concatenate([self._standings(*look) for look in looks])

        Annealing(replace(OPTIONS, chains=OPTIONS.chains * len(choices))).explore(
            domain=self._domain,
            score=score,
            best=self._reference[:0],
            pool=Pools(pools),
            rng=self._rng,
        )
        best = []
        for pool in pools:
            (point, *_), (standing, *_) = pool.best()
            best.append((self._mean - self._spread * float(standing), tuple(point.tolist())))
        return best

    def _standings(self, points: Points, log_times: Floats, choice: _Choice) -> Vector:
        """Scores of points, far lower where they have other values than the choice."""
        column, values = choice
        apart = _APART * ~np.isin(points[:, column], values)
        scores: Vector = ((self._mean - log_times - apart) / self._spread).astype(np.float32)
        return scores


def _kinds(knob: Knob) -> range:
    """Indices of the values that make another kind of nest, not one of another size.

    These are all words, and the reduction in one block, which keeps no sums from one
    block to the next.
    """
    if isinstance(knob.values[0], str):
        return range(len(knob.values))
    if knob.role is KnobRole.REDUCTION_BLOCK:
        return range(len(knob.values) - 1, len(knob.values))
    return range(0)
