"""The gradient-boosted cost model: the only file that imports XGBoost.

One booster, two ways to learn an order from it; rows are compared only within their workload.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xgboost

from tuner.cost_model.metrics import pairwise_accuracy
from tuner.cost_model.model import Features, Groups, Vector
from tuner.errors import UsageError

Objective = Literal["pairwise", "relative"]

_FAILED_LABEL = 0.01  # log of a failure's label 0: a hundred times slower than the best, below nearly all that ran
_HOLDOUT = 32  # rows of the newest batch that judge the number of trees
_HOLDOUT_FROM = 192  # rows from which giving some away pays; with fewer, stopping early cost 0.02 of pairwise accuracy
_PATIENCE = 40  # trees without a better judgement


@dataclass(frozen=True, kw_only=True)
class RankerOptions:
    """`pairwise` is XGBoost's LambdaMART on pairs, `relative` regresses log(label), centred within each workload.

    `pairwise` is the default: with it annealing reached the best points in the fewest trials (docs/search.md has the table),
    although `relative` orders random points a little better.
    """

    objective: Objective = "pairwise"
    trees: int = 200
    depth: int = 4
    learning_rate: float = 0.15
    columns: float = 1.0  # share of the features each tree may look at
    rows: float = 1.0  # share of the rows each tree learns from
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class _Rows:
    features: Features
    labels: Vector
    groups: Groups
    weights: Vector
    margin: Vector | None

    def take(self, index: Any) -> _Rows:
        margin = None if self.margin is None else self.margin[index]
        return _Rows(
            features=self.features[index],
            labels=self.labels[index],
            groups=self.groups[index],
            weights=self.weights[index],
            margin=margin,
        )


class Ranker:
    """A `CostModel`. Deterministic: one thread, fixed seed."""

    def __init__(self, options: RankerOptions | None = None) -> None:
        self.options = options or RankerOptions()
        self._booster: xgboost.Booster | None = None

    @property
    def trained(self) -> bool:
        return self._booster is not None

    def fit(
        self, features: Features, labels: Vector, groups: Groups, weights: Vector | None = None, *, margin: Vector | None = None
    ) -> None:
        """As `CostModel.fit`; `pairwise` takes one weight a workload, that of its first row. `margin` (n,) is
        another model's score, to which this one adds what it missed."""
        if not len(features):
            raise UsageError("a cost model needs at least one row to learn from; give it measured trials first")
        rows = _Rows(
            features=np.ascontiguousarray(features, np.float32),
            labels=np.asarray(labels, np.float32),
            groups=np.asarray(groups, np.int64),
            weights=np.ones(len(features), np.float32) if weights is None else np.asarray(weights, np.float32),
            margin=margin,
        )
        with xgboost.config_context(nthread=1):  # the booster's own nthread does not reach all of its parallel loops
            trees = self._judged_trees(rows) if len(features) >= _HOLDOUT_FROM else self.options.trees
            self._booster = xgboost.train(self._parameters(), self._matrix(rows), trees)

    def predict(self, features: Features) -> Vector:
        if self._booster is None:
            return np.zeros(len(features), np.float32)
        self._check_width(features.shape[1])
        scores: Vector = self._booster.inplace_predict(np.ascontiguousarray(features, np.float32), predict_type="margin")
        return scores

    def save(self) -> bytes:
        return b"" if self._booster is None else bytes(self._booster.save_raw("ubj"))

    def load(self, data: bytes) -> None:
        self._booster = load_booster(data)

    def note(self, **numbers: float) -> None:
        """Writes numbers into the trained model, so that they are saved with it."""
        if self._booster is not None:
            self._booster.set_attr(**{name: repr(number) for name, number in numbers.items()})

    def notes(self) -> dict[str, float]:
        attributes = {} if self._booster is None else self._booster.attributes()
        return {
            name: float(value) for name, value in attributes.items() if name in {"share", "offset"} or name.startswith("cost")
        }

    def _check_width(self, width: int) -> None:
        if self._booster is not None and self._booster.num_features() != width:
            raise UsageError(
                f"this cost model was trained on {self._booster.num_features()} features, the candidates have {width}; "
                "it belongs to another version of the features, train a new one"
            )

    def _judged_trees(self, rows: _Rows) -> int:
        """The number of trees at which the newest rows, held out, are ordered best."""
        old, new = rows.take(slice(0, -_HOLDOUT)), rows.take(slice(-_HOLDOUT, None))
        labels, groups = new.labels, new.groups

        def disorder(scores: np.ndarray[Any, Any], _: xgboost.DMatrix) -> tuple[str, float]:
            return "disorder", 1.0 - pairwise_accuracy(scores, labels, groups)

        booster = xgboost.train(
            self._parameters(),
            self._matrix(old),
            self.options.trees,
            evals=[(self._matrix(new), "newest")],
            custom_metric=disorder,
            early_stopping_rounds=_PATIENCE,
            verbose_eval=False,
        )
        return max(self.options.trees // 2, int(booster.best_iteration) + 1)  # a judgement of few rows is noisy

    def _matrix(self, rows: _Rows) -> xgboost.DMatrix:
        if self.options.objective == "relative":
            return xgboost.DMatrix(
                rows.features, relative_target(rows.labels, rows.groups), weight=rows.weights, base_margin=rows.margin, nthread=1
            )
        order = np.argsort(rows.groups, kind="stable")
        rows = rows.take(order)
        first = np.unique(rows.groups, return_index=True)[1]
        return xgboost.DMatrix(
            rows.features, rows.labels, qid=rows.groups, weight=rows.weights[first], base_margin=rows.margin, nthread=1
        )

    def _parameters(self) -> dict[str, str | int | float]:
        chosen: dict[Objective, dict[str, str | int | float]] = {
            "relative": {"objective": "reg:squarederror", "base_score": 0.0},
            "pairwise": {"objective": "rank:pairwise", "lambdarank_pair_method": "mean", "lambdarank_num_pair_per_sample": 8},
        }
        return {
            **common_parameters(self.options.depth, self.options.learning_rate, self.options.seed),
            "colsample_bytree": self.options.columns,
            "subsample": self.options.rows,
            **chosen[self.options.objective],
            "disable_default_eval_metric": 1,
        }


class _SmallTrees:
    """Thirty shallow trees from features to one number; deterministic. They start from the mean of what they are taught."""

    _objective: str

    def __init__(self, *, seed: int = 0) -> None:
        self._booster: xgboost.Booster | None = None
        self._seed = seed

    @property
    def trained(self) -> bool:
        return self._booster is not None

    def fit(self, features: Features, targets: Vector) -> None:
        mean = float(np.mean(targets))
        parameters = {"objective": self._objective, "base_score": mean, **common_parameters(3, 0.3, self._seed)}
        with xgboost.config_context(nthread=1):
            matrix = xgboost.DMatrix(np.ascontiguousarray(features, np.float32), targets, nthread=1)
            self._booster = xgboost.train(parameters, matrix, 30)

    def predict(self, features: Features) -> Vector:
        """Shape (n,); zeros before training."""
        if self._booster is None:
            return np.zeros(len(features), np.float32)
        found: Vector = self._booster.inplace_predict(np.ascontiguousarray(features, np.float32))
        return found


class FailureClassifier(_SmallTrees):
    """Probability that a candidate fails by its own fault. Targets (n,) are 1 where it did and 0 where it was timed; both must
    occur."""

    _objective = "binary:logistic"


class Regressor(_SmallTrees):
    """A number, by squared error."""

    _objective = "reg:squarederror"


def common_parameters(depth: int, learning_rate: float, seed: int) -> dict[str, str | int | float]:
    return {"tree_method": "hist", "max_depth": depth, "eta": learning_rate, "nthread": 1, "seed": seed, "min_child_weight": 1}


def relative_target(labels: Vector, groups: Groups) -> Vector:
    """log(label) minus its mean within the group: what is left is order and ratio, whatever the workload's own scale."""
    logs = np.log(np.maximum(labels, _FAILED_LABEL))
    _, inverse = np.unique(groups, return_inverse=True)
    means = np.bincount(inverse, weights=logs) / np.bincount(inverse)
    target: Vector = (logs - means[inverse]).astype(np.float32)
    return target


def load_booster(data: bytes) -> xgboost.Booster | None:
    if not data:
        return None
    booster = xgboost.Booster({"nthread": 1})
    try:
        booster.load_model(bytearray(data))
    except xgboost.core.XGBoostError as error:
        raise UsageError(f"{len(data)} bytes are not a cost model in UBJ: {str(error).splitlines()[0]}") from error
    return booster
