"""What every cost model promises: order learnt from labels, the same each time, the
same after saving and loading."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import xgboost

from tests.support.learning_problem import LearningProblem, problem
from tuner.cost_model.history import TransferRanker
from tuner.cost_model.metrics import pairwise_accuracy
from tuner.cost_model.model import CostModel
from tuner.cost_model.ranker import Ranker
from tuner.errors import UsageError


def transferred() -> CostModel:
    past = problem(seed=9, rows=300, shift=0.05)
    opinion = Ranker()
    opinion.fit(past.features, past.labels, past.groups)
    return TransferRanker(opinion)


MODELS: dict[str, Callable[[], CostModel]] = {
    "pairwise": Ranker,
    "transfer": transferred,
}


@pytest.fixture(params=sorted(MODELS))
def model(request: pytest.FixtureRequest) -> CostModel:
    return MODELS[request.param]()


def fitted(model: CostModel, data: LearningProblem) -> CostModel:
    model.fit(data.features, data.labels, data.groups)
    return model


def test_it_orders_points_it_has_not_seen(model: CostModel) -> None:
    seen, unseen = problem(seed=1, rows=400), problem(seed=2, rows=1000)
    scores = fitted(model, seen).predict(unseen.features)
    assert scores.shape == (1000,) and scores.dtype == np.float32
    assert pairwise_accuracy(scores, unseen.labels) > 0.75


def test_it_learns_within_groups_whatever_their_scale(model: CostModel) -> None:
    """Labels of the second workload are a tenth of the first's at the same features, as
    its best is an outlier."""
    a, b = problem(seed=1, rows=200), problem(seed=2, rows=200)
    features = np.concatenate([a.features, b.features])
    groups = np.repeat(np.array([0, 1]), 200)
    model.fit(features, np.concatenate([a.labels, b.labels / 10]).astype(np.float32), groups)
    unseen = problem(seed=3, rows=500)
    assert pairwise_accuracy(model.predict(unseen.features), unseen.labels) > 0.7


def test_failures_rank_below_what_ran(model: CostModel) -> None:
    data = problem(seed=1, rows=400)
    failing = data.features[:, 0] > 0.7
    labels = np.where(failing, 0.0, data.labels).astype(np.float32)
    model.fit(data.features, labels, data.groups)
    unseen = problem(seed=2, rows=500)
    scores, bad = model.predict(unseen.features), unseen.features[:, 0] > 0.72
    assert np.median(scores[bad]) < np.quantile(scores[~bad], 0.2)


def test_it_is_deterministic(model: CostModel, request: pytest.FixtureRequest) -> None:
    data = problem(seed=4, rows=150)
    twin = MODELS[request.node.callspec.params["model"]]()
    first, second = (
        fitted(model, data).predict(data.features),
        fitted(twin, data).predict(data.features),
    )
    assert np.array_equal(first, second)


def test_it_survives_saving_and_loading(model: CostModel, request: pytest.FixtureRequest) -> None:
    data = problem(seed=4, rows=150)
    saved = fitted(model, data).save()
    assert saved[:1] == b"{"  # UBJ opens an object
    twin = MODELS[request.node.callspec.params["model"]]()
    twin.load(saved)
    assert np.array_equal(twin.predict(data.features), model.predict(data.features))


def test_features_that_do_not_vary_neither_teach_nor_get_in_the_way() -> None:
    """Rows to be ranked may differ in what the rows learned from had in common, saved or not."""
    data, unseen = problem(seed=4, rows=150), problem(seed=5, rows=100)
    constant = np.full((150, 3), 7.0, np.float32)
    wide = np.concatenate([constant, data.features, constant], axis=1)
    model, plain, loaded = Ranker(), Ranker(), Ranker()
    model.fit(wide, data.labels, data.groups)
    plain.fit(data.features, data.labels, data.groups)
    loaded.load(model.save())
    noise = np.random.default_rng(0).normal(size=(2, 100, 3)).astype(np.float32)
    rows = np.concatenate([noise[0], unseen.features, noise[1]], axis=1)
    for fitted_model in (model, loaded):
        assert np.array_equal(fitted_model.predict(rows), plain.predict(unseen.features))
    with pytest.raises(
        UsageError,
        match=f"trained on {rows.shape[1]} features, the candidates have "
        f"{unseen.features.shape[1]}",
    ):
        loaded.predict(unseen.features)


def test_a_model_saved_before_features_had_names_is_read() -> None:
    data = problem(seed=4, rows=150)
    rows = xgboost.DMatrix(data.features, data.labels, nthread=1)
    booster = xgboost.train({"nthread": 1, "max_depth": 3}, rows, 10)
    model = Ranker()
    model.load(bytes(booster.save_raw("ubj")))
    assert np.array_equal(model.predict(data.features), booster.predict(rows, output_margin=True))
    with pytest.raises(UsageError, match="another version of the features"):
        model.predict(data.features[:, :-1])


def test_it_learns_anew_each_time(model: CostModel, request: pytest.FixtureRequest) -> None:
    old, data = problem(seed=5, rows=120), problem(seed=6, rows=150)
    twin = MODELS[request.node.callspec.params["model"]]()
    fitted(model, old)
    assert np.array_equal(
        fitted(model, data).predict(data.features), fitted(twin, data).predict(data.features)
    )


@pytest.mark.parametrize(
    "labels", [np.zeros(40, np.float32), np.ones(40, np.float32)], ids=["all-failed", "all-alike"]
)
def test_labels_without_order_are_no_error(
    model: CostModel, labels: np.ndarray[tuple[int], np.dtype[np.float32]]
) -> None:
    data = problem(seed=7, rows=40)
    model.fit(data.features, labels, data.groups)
    assert np.isfinite(model.predict(data.features)).all()


def test_one_row_is_enough_to_be_fitted(model: CostModel) -> None:
    data = problem(seed=7, rows=1)
    assert np.isfinite(fitted(model, data).predict(data.features)).all()


def test_other_features_than_it_was_trained_on_are_refused(model: CostModel) -> None:
    data = problem(seed=8, rows=60)
    fitted(model, data)
    with pytest.raises(UsageError, match="another version of the features"):
        model.predict(data.features[:, :-1])


def test_bytes_that_are_no_model_are_refused(model: CostModel) -> None:
    with pytest.raises(UsageError, match="not a cost model"):
        model.load(b"not a model at all")
