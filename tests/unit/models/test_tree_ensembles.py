"""Ensembles of trees: what they become computes what ONNX Runtime does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.models.onnx_cases import RIGHT, cases_of, verdict
from tests.unit.models.learned_models import (
    LABELS,
    X,
    assert_as_the_runtime,
    assert_the_library_is_right,
    forest,
    model_of,
    read,
)
from tuner.models.errors import ModelRefused

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_trees_give_numbers(aggregate: str, dtype: str) -> None:
    x = X.astype(dtype)
    attributes = {"n_targets": 2, "aggregate_function": aggregate, "base_values": [0.5, -0.25]}
    attributes |= forest("target", 2)
    assert_as_the_runtime(model_of("TreeEnsembleRegressor", attributes, x, {"Y": np.float32}), x)


@pytest.mark.parametrize("modes", [MODES, *((mode,) for mode in MODES)], ids=" ".join)
def test_branches_compare_in_every_way(modes: Sequence[str]) -> None:
    attributes = {"n_targets": 1, **forest("target", 1, modes=modes)}
    assert_as_the_runtime(model_of("TreeEnsembleRegressor", attributes, X, {"Y": np.float32}), X)


def test_elements_that_are_nan_go_where_the_branch_says() -> None:
    x = np.where(np.random.default_rng(5).random(X.shape) < 0.4, np.float32("nan"), X)
    attributes = {"n_targets": 1, **forest("target", 1, modes=("LEQ", "GT"), missing=1)}
    assert_as_the_runtime(model_of("TreeEnsembleRegressor", attributes, x, {"Y": np.float32}), x)
    attributes = {"n_targets": 1, **forest("target", 1)}
    assert_as_the_runtime(model_of("TreeEnsembleRegressor", attributes, x, {"Y": np.float32}), x)


def test_trees_take_integers() -> None:
    attributes = {**forest("class", 3), "classlabels_int64s": [0, 1, 2]}
    x = X.astype(np.int64)
    assert_as_the_runtime(model_of("TreeEnsembleClassifier", attributes, x, LABELS), x)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_trees_give_classes(transform: str) -> None:
    attributes = {
        **forest("class", 3),
        "post_transform": transform,
        "classlabels_int64s": [4, 0, 7],
        "base_values": [0.5, 0.0, -0.5],
    }
    assert_as_the_runtime(model_of("TreeEnsembleClassifier", attributes, X, LABELS), X)


@pytest.mark.parametrize(("transform", "low"), [("NONE", 0.0), ("LOGISTIC", -1.0)])
def test_trees_give_the_score_of_one_class_of_two(transform: str, low: float) -> None:
    attributes = {
        **forest("class", 1, low=low),
        "post_transform": transform,
        "classlabels_int64s": [0, 1],
    }
    if transform == "NONE":  # parts of 1
        attributes["class_weights"] = [weight / 5 for weight in attributes["class_weights"]]
    assert_as_the_runtime(model_of("TreeEnsembleClassifier", attributes, X, LABELS), X)


@pytest.mark.parametrize(
    ("transform", "low", "targets"), [("NONE", -1.0, 1), ("LOGISTIC", 0.0, 1), ("NONE", 0.0, 2)]
)
def test_what_runtimes_compute_differently_is_refused(
    transform: str, low: float, targets: int
) -> None:
    attributes = {
        **forest("class", targets, low=low),
        "post_transform": transform,
        "classlabels_int64s": [0, 1],
    }
    with pytest.raises(ModelRefused, match="which runtimes compute differently"):
        read(model_of("TreeEnsembleClassifier", attributes, X, LABELS))


def test_trees_of_the_newest_form_are_right_on_the_cases_of_the_standard() -> None:
    verdicts = {c.name: verdict(c) for c in cases_of("TreeEnsemble", "ai_onnx_ml.tree_ensemble")}
    assert len(verdicts) >= 2
    assert {*verdicts.values()} == {RIGHT}


def circle() -> dict[str, Any]:
    attributes = {"n_targets": 1, **forest("target", 1)}
    attributes["nodes_truenodeids"][0] = 0
    return attributes


def lost() -> dict[str, Any]:
    attributes = {"n_targets": 1, **forest("target", 1)}
    attributes["nodes_falsenodeids"][0] = 99
    return attributes


def beyond() -> dict[str, Any]:
    attributes = {"n_targets": 1, **forest("target", 1)}
    attributes["nodes_featureids"][0] = X.shape[1]
    return attributes


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        (circle(), "path of more than 1024 branches"),
        (lost(), "node 99 of tree 0, which is not there"),
        (beyond(), "name features from 0 to 5, of 5"),
    ],
    ids=["circle", "lost", "beyond"],
)
def test_trees_that_are_none_are_refused(attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelRefused, match=reason):
        read(model_of("TreeEnsembleRegressor", attributes, X, {"Y": np.float32}))


@pytest.mark.slow
def test_kernels_of_trees_compile_to_what_they_say(tmp_path: Path) -> None:
    attributes = {**forest("class", 3, modes=("LEQ", "EQ"), missing=1)}
    attributes["classlabels_int64s"] = [4, 0, 7]
    graph = read(model_of("TreeEnsembleClassifier", attributes, X, LABELS))
    x = np.where(np.random.default_rng(5).random(X.shape) < 0.2, np.float32("nan"), X)
    assert_the_library_is_right(graph, x, tmp_path / "out")
