"""The gradient-boosted cost model: the only file that imports XGBoost.

LambdaMART on pairs of rows of one workload: rows are compared only within their workload.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xgboost

from tuner.cost_model.model import Features, Groups, Vector
from tuner.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class RankerOptions:
    """Few trees that learn slowly, each split chosen among some of the features: rows
    are tens to hundreds, features hundreds, and more or eager trees learn by heart what
    the next batch refutes (docs/design-notes/0002 has the table)."""

    rounds: int = 60
    parallel: int = 1  # trees of a round, of which it takes the mean
    depth: int = 4
    learning_rate: float = 0.1
    # features that a split is chosen from, drawn anew for each of those that vary;
    # where there are fewer, all
    choice: int = 64
    subsample: float = 1.0  # rows that a tree sees
    pairs: int = 8  # rows that each row is compared with, drawn anew for each round
    seed: int = 0


class Ranker:
    """A `CostModel`. Deterministic: one thread, fixed seed."""

    def __init__(self, options: RankerOptions | None = None) -> None:
        self.options = options or RankerOptions()
        self._booster: xgboost.Booster | None = None
        self._columns = np.zeros(0, np.int64)  # features that the booster sees

    @property
    def trained(self) -> bool:
        return self._booster is not None

    def fit(
        self, features: Features, labels: Vector, groups: Groups, *, margin: Vector | None = None
    ) -> None:
        """As `CostModel.fit`. `margin` (n,) is another model's score, to which this one
        adds what it missed."""
        if not len(features):
            raise UsageError(
                "a cost model needs at least one row to learn from; give it measured trials first"
            )
        order = np.argsort(groups, kind="stable")  # XGBoost wants the rows of a workload together
        # Many features of a workload say nothing, e.g. those of a second group where
        # there is one; narrow rows are ranked faster.
        varied = np.flatnonzero(features.min(axis=0) < features.max(axis=0))
        columns = varied if len(varied) else np.arange(features.shape[1])
        with xgboost.config_context(
            nthread=1
        ):  # the booster's own nthread does not reach all of its parallel loops
            rows = xgboost.DMatrix(
                np.ascontiguousarray(features[np.ix_(order, columns)], np.float32),
                labels[order],
                qid=groups[order],
                base_margin=None if margin is None else margin[order],
                nthread=1,
            )
            # Noted beside the trees: names of features, which XGBoost would compare for
            # each tree, took a twentieth of the time.
            self._booster = xgboost.train(self._parameters(len(columns)), rows, self.options.rounds)
            self._booster.set_attr(
                width=str(features.shape[1]), columns=" ".join(map(str, columns))
            )
        self._columns = columns

    def predict(self, features: Features) -> Vector:
        if self._booster is None:
            return np.zeros(len(features), np.float32)
        self._check_width(self._booster, features.shape[1])
        seen = features.take(self._columns, axis=1).astype(np.float32, copy=False)
        scores: Vector = self._booster.inplace_predict(seen, predict_type="margin")
        return scores

    def save(self) -> bytes:
        return b"" if self._booster is None else bytes(self._booster.save_raw("ubj"))

    def load(self, data: bytes) -> None:
        self._booster = _load_booster(data)
        if self._booster is not None:
            noted = (self._booster.attr("columns") or "").split()
            # Older boosters have them as names of features, and none where they saw all.
            columns = noted or self._booster.feature_names or range(self._booster.num_features())
            self._columns = np.array([int(column) for column in columns])

    def note(self, **numbers: float) -> None:
        """Writes numbers into the trained model, so that they are saved with it."""
        if self._booster is not None:
            self._booster.set_attr(**{name: repr(number) for name, number in numbers.items()})

    def notes(self) -> dict[str, float]:
        attributes = {} if self._booster is None else self._booster.attributes()
        return {
            name: float(value) for name, value in attributes.items() if name in {"share", "offset"}
        }

    @staticmethod
    def _check_width(booster: xgboost.Booster, width: int) -> None:
        trained = int(booster.attr("width") or booster.num_features())
        if trained != width:
            raise UsageError(
                f"this cost model was trained on {trained} features, the candidates have {width}; "
                "it belongs to another version of the features, train a new one"
            )

    def _parameters(self, width: int) -> dict[str, str | int | float]:
        return {
            **_common_parameters(self.options.depth, self.options.learning_rate, self.options.seed),
            "objective": "rank:pairwise",
            "lambdarank_pair_method": "mean",
            "lambdarank_num_pair_per_sample": self.options.pairs,
            "colsample_bynode": min(1.0, self.options.choice / width),
            "num_parallel_tree": self.options.parallel,
            "subsample": self.options.subsample,
            "disable_default_eval_metric": 1,
        }


class _SmallTrees:
    """Thirty shallow trees from features to one number; deterministic. They start from
    the mean of what they are taught."""

    _objective: str

    def __init__(self, *, seed: int = 0) -> None:
        self._booster: xgboost.Booster | None = None
        self._seed = seed

    @property
    def trained(self) -> bool:
        return self._booster is not None

    def fit(self, features: Features, targets: Vector) -> None:
        mean = float(np.mean(targets))
        parameters = {
            "objective": self._objective,
            "base_score": mean,
            **_common_parameters(3, 0.3, self._seed),
        }
        with xgboost.config_context(nthread=1):
            matrix = xgboost.DMatrix(np.ascontiguousarray(features, np.float32), targets, nthread=1)
            self._booster = xgboost.train(parameters, matrix, 30)

    def predict(self, features: Features) -> Vector:
        """Shape (n,); zeros before training."""
        if self._booster is None:
            return np.zeros(len(features), np.float32)
        scores: Vector = self._booster.inplace_predict(np.ascontiguousarray(features, np.float32))
        return scores


class FailureClassifier(_SmallTrees):
    """Probability that a candidate fails by its own fault. Targets (n,) are 1 where it
    did and 0 where it was timed; both must occur."""

    _objective = "binary:logistic"


class Regressor(_SmallTrees):
    """A number, by squared error."""

    _objective = "reg:squarederror"


def _common_parameters(depth: int, learning_rate: float, seed: int) -> dict[str, str | int | float]:
    return {
        "tree_method": "hist",
        "max_depth": depth,
        "eta": learning_rate,
        "nthread": 1,
        "seed": seed,
        "min_child_weight": 1,
    }


def _load_booster(data: bytes) -> xgboost.Booster | None:
    if not data:
        return None
    booster = xgboost.Booster({"nthread": 1})
    try:
        booster.load_model(bytearray(data))
    except xgboost.core.XGBoostError as error:
        raise UsageError(
            f"{len(data)} bytes are not a cost model in UBJ: {str(error).splitlines()[0]}"
        ) from error
    return booster
