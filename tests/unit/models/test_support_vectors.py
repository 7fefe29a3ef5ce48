"""Support vector machines and linear models: what they become computes what ONNX Runtime does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.models.learned_models import (
    LABELS,
    X,
    assert_as_the_runtime,
    assert_the_library_is_right,
    machine,
    model_of,
    read,
)
from tuner.models.errors import ModelRefused
from tuner.models.files.onnx_file import read_model
from tuner.models.reference.node_check import verdict_on
from tuner.models.reference.verdict import Right


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_linear_models_give_classes(transform: str) -> None:
    rng = np.random.default_rng(0)
    attributes = {
        "coefficients": rng.standard_normal(15).tolist(),
        "intercepts": rng.standard_normal(3).tolist(),
        "classlabels_ints": [0, 1, 2],
        "post_transform": transform,
    }
    assert_as_the_runtime(model_of("LinearClassifier", attributes, X, LABELS), X)


def test_linear_models_give_numbers() -> None:
    rng = np.random.default_rng(0)
    attributes = {"coefficients": rng.standard_normal(10).tolist(), "targets": 2}
    attributes["intercepts"] = [0.5, -1.0]
    assert_as_the_runtime(model_of("LinearRegressor", attributes, X, {"Y": np.float32}), X)


@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize(
    ("kernel", "parameters"),
    [
        ("LINEAR", (0.0, 0.0, 0.0)),
        ("POLY", (0.5, 1.0, 3.0)),
        ("RBF", (0.3, 0.0, 0.0)),
        ("SIGMOID", (0.2, 0.5, 0)),
    ],
)
def test_support_vectors_give_numbers(
    kernel: str, parameters: tuple[float, ...], one_class: int
) -> None:
    rng = np.random.default_rng(0)
    attributes = {
        "kernel_type": kernel,
        "kernel_params": list(parameters),
        "n_supports": 4,
        "support_vectors": rng.standard_normal(20).tolist(),
        "coefficients": rng.standard_normal(4).tolist(),
        "rho": [0.25],
        "one_class": one_class,
    }
    assert_as_the_runtime(model_of("SVMRegressor", attributes, X, {"Y": np.float32}), X)


def test_a_support_vector_machine_without_vectors_is_linear() -> None:
    attributes: dict[str, Any] = {
        "coefficients": [0.5, -1.0, 2.0, 0.25, 1.0],
        "rho": [0.5],
        "n_supports": 0,
    }
    attributes["kernel_params"] = [0.0, 0.0, 0.0]
    assert_as_the_runtime(model_of("SVMRegressor", attributes, X, {"Y": np.float32}), X)


def with_probabilities(classes: int, **more: Any) -> dict[str, Any]:
    rng, pairs = np.random.default_rng(9), classes * (classes - 1) // 2
    slopes, offsets = -1 - rng.random(pairs), rng.standard_normal(pairs)
    return machine(classes, prob_a=slopes.tolist(), prob_b=offsets.tolist(), **more)


@pytest.mark.parametrize(
    ("kernel", "parameters"),
    [("LINEAR", [0.0, 0.0, 0.0]), ("POLY", [0.5, 1.0, 3.0]), ("SIGMOID", [0.2, 0.5, 0.0])],
)
@pytest.mark.parametrize("classes", [2, 3, 4])
def test_support_vectors_give_classes(
    classes: int, kernel: str, parameters: Sequence[float]
) -> None:
    attributes = machine(classes, kernel_type=kernel, kernel_params=parameters)
    assert_as_the_runtime(model_of("SVMClassifier", attributes, X, LABELS), X)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("classes", [2, 3, 4])
def test_support_vectors_give_probabilities(classes: int, transform: str) -> None:
    attributes = with_probabilities(classes, post_transform=transform)
    model = model_of("SVMClassifier", attributes, X, LABELS)
    assert_as_the_runtime(model, X)
    content = model.SerializeToString()
    assert isinstance(verdict_on(read_model(content, {}), read(model), [X], {}), Right)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        (machine(2, post_transform="LOGISTIC"), "which runtimes compute differently"),
        (machine(2, coefficients=[0.5] * 5), "which runtimes compute differently"),
        (machine(3, vectors_per_class=None), "export it as a LinearClassifier"),
        (machine(3, vectors_per_class=[4, 3]), r"vectors_per_class \[4, 3\] of 3 classes"),
        (machine(3, coefficients=[0.5]), "1 coefficients for 7 vectors of 3 classes"),
        (machine(3, rho=[0.5]), "1 numbers rho"),
        (machine(3, support_vectors=[0.5]), "1 numbers in 7 vectors of 5 columns"),
    ],
    ids=["transformed", "positive", "linear", "classes", "coefficients", "rho", "vectors"],
)
def test_classifiers_of_other_forms_are_refused(attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelRefused, match=reason):
        read(model_of("SVMClassifier", attributes, X, LABELS))


@pytest.mark.slow
def test_kernels_of_support_vectors_compile_to_what_they_say(tmp_path: Path) -> None:
    graph = read(model_of("SVMClassifier", with_probabilities(3), X, LABELS))
    assert_the_library_is_right(graph, X, tmp_path / "out")
