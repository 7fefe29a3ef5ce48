"""Optuna's tree-structured Parzen estimator as a `Searcher`, to compare with. Needs Optuna."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np
import optuna

from tuner.measure.outcome import Failed, FailureKind, Timed, Trial
from tuner.search.domain import Domain
from tuner.search.random import random_sequence
from tuner.search.searcher import Plan
from tuner.spaces.core.space import Config, Points

_REPEATS = 64  # suggestions of tried points in a row, after which a random point is taken


class TpeSearcher:
    """A `Searcher` with Optuna's defaults.

    A knob is an integer, the index of its value, because neighbouring values are
    similar. TPE suggests some points repeatedly. A repeat is answered from memory and
    costs no trial, which favours TPE in comparisons.
    """

    def __init__(self, domain: Domain, *, seed: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._domain = domain
        self._study = optuna.create_study(
            sampler=optuna.samplers.TPESampler(seed=seed), direction="minimize"
        )
        self._open: dict[int, optuna.trial.Trial] = {}  # suggestions in flight, by key
        self._values: dict[int, float | None] = {}  # log of seconds by key; None for a failure
        self._random = random_sequence(domain, seed)

    def forecast(self, config: Config) -> float | None:
        return None  # it does not score points

    @property
    def plans(self) -> tuple[Plan, ...]:
        return ()

    def ask(self, count: int) -> Points:
        points = []
        for _ in range(count):
            point = self._suggested()
            if point is None:
                break
            points.append(point)
        width = len(self._domain.space.knobs)
        return np.stack(points).astype(np.int32) if points else np.zeros((0, width), np.int32)

    def tell(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            if not trial.config:
                continue
            key = self._key(self._domain.space.point(trial.config))
            suggestion = self._open.pop(key, None)
            match trial.outcome:
                case Timed() as timed:
                    self._values[key] = log(timed.median_s)
                case Failed(kind=FailureKind.INFRASTRUCTURE):
                    continue
                case _:
                    self._values[key] = None
            if suggestion is not None:
                self._answer(suggestion, self._values[key])

    def _suggested(self) -> np.ndarray[tuple[int], np.dtype[np.int32]] | None:
        """A point that was not tried, shape (knobs,); None when all were."""
        for _ in range(_REPEATS):
            suggestion = self._study.ask()
            point = self._point(suggestion)
            key = self._key(point)
            if key in self._values:
                self._answer(suggestion, self._values[key])
            elif key in self._open or not self._domain.contains(point[None, :])[0]:
                self._answer(suggestion, None)
            else:
                self._open[key] = suggestion
                return point
        for point in self._random:
            key = self._key(point)
            if key not in self._values and key not in self._open:
                self._open[key] = self._study.ask()
                return point
        return None

    def _point(self, suggestion: optuna.trial.Trial) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """The suggested point, shape (knobs,); knobs that its sketch does not use are 0."""
        space = self._domain.space
        point = np.zeros(len(space.knobs), np.int32)
        if len(space.combinations) > 1:
            point[0] = suggestion.suggest_categorical(
                "sketch", list(range(len(space.combinations)))
            )
        for column in np.flatnonzero(space.active[point[0]]):
            if column:
                point[column] = suggestion.suggest_int(
                    space.knobs[column].name, 0, int(space.cardinalities[column]) - 1
                )
        return point

    def _key(self, point: np.ndarray[tuple[int], np.dtype[np.int32]]) -> int:
        return int(self._domain.keys(point[None, :])[0])

    def _answer(self, suggestion: optuna.trial.Trial, value: float | None) -> None:
        """Tells Optuna the logarithm of the seconds, or a failure."""
        if value is None:
            self._study.tell(suggestion, state=optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(suggestion, value)
