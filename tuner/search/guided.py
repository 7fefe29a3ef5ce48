"""The model-guided searcher: refits the model, explores, and lines up the next batch.

Everything random or learned happens in `tell`, at fixed numbers of trials, with a
generator made of (seed, round). So a new searcher that is told the recorded trials is in
the state of the lost one. `ask` only takes the next free points of the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.cuda.resources import ResourceForecast
from tuner.cost_model.metrics import spearman
from tuner.cost_model.model import CostModel, Features, Featurizer, Vector
from tuner.cost_model.validity import ValidityFilter
from tuner.measure.objective import FASTEST, Goal
from tuner.measure.outcome import Trial
from tuner.search.diversity import choose
from tuner.search.domain import Domain
from tuner.search.explorer import Explorer
from tuner.search.ledger import Ledger, Row
from tuner.search.pool import Pool
from tuner.search.random import random_sequence
from tuner.search.searcher import Plan
from tuner.search.setup import GuidedOptions, SearchSetup
from tuner.spaces.core.space import Config, Points

Source = Literal["model", "local", "random", "seed"]  # why a point was lined up

_OWN = 0  # group of the workload being searched; history has other groups
# Draws without a new point after which a space that is too large to list is exhausted.
_FRUITLESS = 4096
_AT_ONCE = 512  # points whose features are computed together, to see which are new
_REPEATS = 32  # neighbours of each of the best points where the model is distrusted
# Last trials by which the model is judged: a rank correlation of so many has a standard
# deviation of 0.15.
_JUDGED = 48


class GuidedSearcher:
    """A `Searcher` with a cost model.

    `seeds`, shape (k, knobs), are points to try early, such as winners of similar workloads.
    They may come after all else is made, by `take_seeds`.
    """

    def __init__(
        self,
        *,
        domain: Domain,
        featurizer: Featurizer,
        model: CostModel,
        explorer: Explorer,
        seed: int,
        options: GuidedOptions | None = None,
        seeds: Points | None = None,
        goal: Goal = FASTEST,
    ) -> None:
        self.options = options or GuidedOptions()
        self._domain, self._featurizer = domain, featurizer
        self._model, self._explorer, self._seed = model, explorer, seed
        self._validity, self._resources = ValidityFilter(seed=seed), ResourceForecast(seed=seed)
        self._ledger = Ledger(domain, goal)
        self._features: list[Features] = []  # of the trials of each plan, shape (n, F)
        self._described: set[bytes] = set()  # the same, row by row
        self._sources: dict[int, Source] = {}  # of the points lined up, by key
        self._source_of_row: list[Source] = []  # of each trial that teaches
        self._plans: list[Plan] = []
        # Of each batch the number of trials and the rank correlation of their predictions.
        self._correlations: list[tuple[int, float]] = []
        self._planned_at, self._next_plan = 0, self.options.first  # in trials
        self._spare = random_sequence(domain, seed)
        self._line: list[Row] = []  # points to hand out, in order
        self._position = 0  # in the line
        self._forecasts: dict[int, float] = {}  # by key, under the present model
        self._line_up_first()
        if seeds is not None:
            self.take_seeds(seeds)

    @property
    def plans(self) -> tuple[Plan, ...]:
        return tuple(self._plans)

    def ask(self, count: int) -> Points:
        rows: list[Row] = []
        while len(rows) < count and self._position < len(self._line):
            row = self._line[self._position]
            self._position += 1
            if self._ledger.hand_out(row):
                rows.append(row)
        fruitless = 0
        while len(rows) < count and self._ledger.remaining and fruitless < _FRUITLESS:
            spare = next(self._spare, None)
            if spare is None:
                break
            fruitless += 1
            if self._ledger.hand_out(spare):
                rows.append(spare)
                fruitless = 0
        return self._ledger.stack(rows)

    def forecast(self, config: Config) -> float | None:
        if not self._model.trained or not config:
            return None
        point = self._domain.space.point(config)[None, :]
        key = int(self._domain.keys(point)[0])
        if key not in self._forecasts:
            self._forecasts[key] = float(self._scores(self._featurizer(point))[0])
        return self._forecasts[key]

    def tell(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            if not self._ledger.tell(trial):
                continue
            key = int(self._domain.keys(self._ledger.last[None, :])[0])
            self._source_of_row.append(self._sources.get(key, "random"))
            if len(self._ledger) == self._next_plan:
                self._plan()

    def take_seeds(self, points: Points) -> None:
        """Puts points to try early, shape (k, knobs), into the line, before anything is asked.

        With a warmed-up model, they alternate with its favourites, so that neither waits
        for the other to fail. Without one, they come first.
        """
        if not len(points):
            return
        if self._model.trained:
            self._interleave(points)
            self._foresee()
            return
        line, self._line = self._line, []
        self._append(points, "seed")
        for key in self._domain.keys(self._ledger.stack(line)).tolist():
            self._sources[key] = "random"
        self._line += line

    def _line_up_first(self) -> None:
        """Fills the line before anything is measured.

        With favourites of a warmed-up model, or with varied random points.
        """
        rng = np.random.default_rng((self._seed, 0))
        length = self.options.first + self.options.reserve
        if self._model.trained:
            self._line_up(self._explored(rng), "model", rng, length)
            self._foresee()
            return
        sample = self._domain.sample(rng, 4 * length)
        sample = sample[self._novel(sample, len(sample))]
        self._append(
            sample[choose(sample, np.zeros(len(sample), np.float32), count=length, weight=1.0)],
            "random",
        )

    def _interleave(self, seeds: Points) -> None:
        """Puts the seeds at every second place of the line, after the model's favourite.

        They keep their order; seeds with equal features are put in once.
        """
        line, self._line = self._line, []
        points = np.concatenate([self._ledger.stack(line[:1]), seeds])
        self._append(points[self._novel(points, len(points))][len(line[:1]) :], "seed")
        for place, row in enumerate(self._line):
            line.insert(min(2 * place + 1, len(line)), row)
        self._line = line

    def _plan(self) -> None:
        """Refits the models on all trials and lines up the next batch."""
        rng = np.random.default_rng((self._seed, len(self._plans) + 1))
        fresh = self._ledger.points[self._planned_at :]
        self._features.append(self._featurizer(fresh))
        self._described.update(map(bytes, self._features[-1]))
        features, labels = np.concatenate(self._features), self._ledger.labels
        correlation = self._judged(self._features[-1], labels[self._planned_at :])
        self._resources.fit(features, self._ledger.resources)
        self._model.fit(
            self._resources.corrected(features), labels, np.full(len(labels), _OWN, np.int64)
        )
        self._validity.fit(features, (labels == 0).astype(np.float32))
        trusted = bool(labels.any()) and self._trusts(correlation, labels)
        done = len(self._ledger)
        self._planned_at = done
        self._next_plan = done + min(self.options.plan, max(self.options.first, done // 2))
        pool = self._explored(rng) if trusted else self._local(rng)
        self._line, self._position = [], 0
        self._line_up(
            pool,
            "model" if trusted else "local",
            rng,
            self._next_plan - done + self.options.reserve,
        )
        self._foresee()
        self._plans.append(
            Plan(
                round=len(self._plans) + 1,
                trials=done,
                correlation=correlation,
                trusted=trusted,
                candidates=pool.seen,
            )
        )

    def _foresee(self) -> None:
        """Computes the forecasts of the whole line.

        Computed one at a time they would take a tenth of a search's time.
        """
        points = self._ledger.stack(self._line)
        forecasts = self._scores(self._featurizer(points)).tolist() if len(points) else []
        self._forecasts = dict(zip(self._domain.keys(points).tolist(), forecasts, strict=True))

    def _judged(self, features: Features, labels: Vector) -> float | None:
        """The rank correlation of the model on a batch that it was not trained on."""
        return spearman(self._scores(features), labels) if self._model.trained else None

    def _scores(self, features: Features) -> Vector:
        """The model's scores of features that are not corrected yet, shape (n,)."""
        return self._model.predict(self._resources.corrected(features))

    def _trusts(self, correlation: float | None, labels: Vector) -> bool:
        """Whether the model may choose the next batch.

        It may not where two signs coincide over the last trials: it ordered them no
        better than chance, and those that it chose were no faster than random points.
        The first sign alone is none, because the points of a good batch differ by little
        more than noise. The second alone is none where most points are equally fast.
        """
        if correlation is not None:
            self._correlations.append((len(labels) - self._planned_at, correlation))
        recent = np.arange(len(labels)) >= len(labels) - _JUDGED
        chosen = labels[recent & np.array([source == "model" for source in self._source_of_row])]
        chance = labels[np.array([source == "random" for source in self._source_of_row])]
        if not self._correlations or len(chosen) < 8 or len(chance) < 8:
            return True
        if self._recent_correlation() >= self.options.trust:
            return True
        return bool(np.median(chosen) > np.quantile(chance, 0.65))

    def _recent_correlation(self) -> float:
        """The mean of the last batches' correlations, weighted by their trials.

        As many batches count as together have _JUDGED trials.
        """
        total = weighted = 0.0
        for count, correlation in reversed(self._correlations):
            total, weighted = total + count, weighted + count * correlation
            if total >= _JUDGED:
                break
        return weighted / total

    def _explored(self, rng: np.random.Generator) -> Pool:
        """The best untried points under the model. Of a small domain all are scored."""
        scores = self._raw(self._scale)
        mean, spread = float(scores.mean()), float(scores.std()) or 1.0

        def standardised(features: Features) -> Vector:
            return (self._raw(features) - mean) / spread

        measured = standardised(np.concatenate(self._features)) if self._features else None
        pool = Pool(
            self._domain, capacity=self.options.pool, tried=self._ledger.tried, measured=measured
        )
        if self._domain.size <= self.options.listed:
            pool.add(self._domain.points(), standardised(self._scale))
        else:
            self._explorer.explore(
                domain=self._domain,
                score=lambda points: standardised(self._featurizer(points)),
                best=self._best(),
                pool=pool,
                rng=rng,
            )
        return pool

    @cached_property
    def _scale(self) -> Features:
        """Features of the points whose scores set the scale.

        These are all points of a small domain, and random points of a large one.
        """
        if self._domain.size <= self.options.listed:
            return self._featurizer(self._domain.points())
        return self._featurizer(
            self._domain.sample(np.random.default_rng(self._seed), self.options.reference)
        )

    def _local(self, rng: np.random.Generator) -> Pool:
        """Neighbours of the best measured points, without the model.

        Neighbours of better points come first.
        """
        pool = Pool(self._domain, capacity=self.options.pool, tried=self._ledger.tried)
        best = self._best()[:8]
        if len(best):
            for repeat in range(_REPEATS):
                # Each repeat has its own scores, because the pool keeps few of one score.
                scores = -np.arange(len(best), dtype=np.float32) - repeat / _REPEATS
                pool.add(self._domain.neighbours(rng, best), scores)
        return pool

    def _raw(self, features: Features) -> Vector:
        """Scores with the penalties of points that are likely to fail, shape (n,)."""
        return (
            self._scores(features)
            + self._validity.penalty(features)
            + self._resources.penalty(features)
        )

    def _best(self) -> Points:
        """The best measured points, the best first, shape (k, knobs)."""
        labels = self._ledger.labels
        order = np.argsort(-labels, kind="stable")[: self.options.good]
        return self._ledger.points[order[labels[order] > 0]]

    def _line_up(self, pool: Pool, source: Source, rng: np.random.Generator, length: int) -> None:
        """Appends a varied choice of the pool to the line, mixed with random points.

        `explore` is the share of random points; half are random when the model is
        distrusted. The first one never is: a kernel of a model may have a single trial.
        """
        points, scores = pool.best()
        novel = self._novel(points, self.options.choice)
        picked = points[novel][
            choose(points[novel], scores[novel], count=length, weight=self.options.diversity)
        ]
        by_chance = rng.random(length) < (self.options.explore if source == "model" else 0.5)
        by_chance[:1] = False
        spare = self._domain.sample(rng, length)
        spare = spare[self._novel(spare, length)]
        picked_count = spare_count = 0
        for place in range(length):
            if by_chance[place] and spare_count < len(spare):
                self._append(spare[spare_count : spare_count + 1], "random")
                spare_count += 1
            elif picked_count < len(picked):
                self._append(picked[picked_count : picked_count + 1], source)
                picked_count += 1

    def _novel(self, points: Points, most: int) -> NDArray[np.int64]:
        """Indices of the first `most` rows with features that no trial and no row before has.

        Configs with equal features nearly always compile to the same code: they differ in
        the order of loops that run once, or in blocks as large as the whole. One of them
        is enough.
        """
        seen = set(self._described)
        rows: list[int] = []
        for first in range(0, len(points), _AT_ONCE):
            for row, described in enumerate(
                map(bytes, self._featurizer(points[first : first + _AT_ONCE])), first
            ):
                if described not in seen:
                    seen.add(described)
                    rows.append(row)
            if len(rows) >= most:
                break
        return np.array(rows[:most], np.int64)

    def _append(self, points: Points, source: Source) -> None:
        """Appends points to the line."""
        for point, key in zip(points, self._domain.keys(points).tolist(), strict=True):
            self._line.append(point)
            self._sources[key] = source


def guided_searcher(setup: SearchSetup, explorer: Explorer) -> GuidedSearcher:
    """A searcher that explores the setup's domain with `explorer` under the setup's model."""
    return GuidedSearcher(
        domain=setup.domain,
        featurizer=setup.featurizer,
        model=setup.model,
        explorer=explorer,
        seed=setup.seed,
        options=setup.options,
        seeds=setup.seeds,
        goal=setup.goal,
    )
