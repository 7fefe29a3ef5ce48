"""Columns, labels and maps of the domain `ai.onnx.ml`: as ONNX Runtime has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from benchmarks.models.onnx_cases import RIGHT, cases_of, verdict
from tests.support.graph_values import graph_outputs
from tests.unit.models.learned_models import (
    LABELS,
    X,
    assert_as_the_runtime,
    forest,
    machine,
    model_of,
    read,
)
from tuner.models.errors import ModelRefused
from tuner.models.files.onnx_file import read_model
from tuner.models.reference.node_check import verdict_on
from tuner.models.reference.verdict import Right

COLUMNS: dict[str, tuple[str, Mapping[str, Any], Any]] = {
    "Scaler of all": ("Scaler", {"offset": [0.5], "scale": [2.0]}, np.float32),
    "Scaler": (
        "Scaler",
        {"offset": [0.5, 1, 0, -1, 2], "scale": [2.0, 1, 3, 4, 0.5]},
        np.float32,
    ),
    "Normalizer L1": ("Normalizer", {"norm": "L1"}, np.float32),
    "Normalizer L2": ("Normalizer", {"norm": "L2"}, np.float32),
    "Binarizer": ("Binarizer", {"threshold": 0.25}, np.float32),
    "Imputer": (
        "Imputer",
        {"imputed_value_floats": [9.0, 8, 7, 6, 5], "replaced_value_float": 0.5},
        np.float32,
    ),
    "FeatureVectorizer": ("FeatureVectorizer", {"inputdimensions": [5]}, np.float32),
    "LabelEncoder": (
        "LabelEncoder",
        {
            "keys_floats": [0.5, -1.0, 0.0],
            "values_int64s": [3, 5, 11],
            "default_int64": 77,
        },
        np.int64,
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_prepared(name: str) -> None:
    op, attributes, dtype = COLUMNS[name]
    assert_as_the_runtime(model_of(op, attributes, X, {"Y": dtype}), X)


def test_missing_numbers_are_replaced() -> None:
    x = np.where(X > 0.6, np.float32("nan"), X)
    attributes = {"imputed_value_floats": [1.5], "replaced_value_float": float("nan")}
    assert_as_the_runtime(model_of("Imputer", attributes, x, {"Y": np.float32}), x)


def test_integers_become_categories() -> None:
    x = np.array([[3], [5], [4]], np.int64)
    attributes = {"cats_int64s": [5, 3, 8], "zeros": 1}
    assert_as_the_runtime(model_of("OneHotEncoder", attributes, x, {"Y": np.float32}), x)


@pytest.mark.parametrize("op", ["ArrayFeatureExtractor", "Binarizer"])
def test_the_cases_of_the_standard_are_right(op: str) -> None:
    module = {"ArrayFeatureExtractor": "array_feature_extractor", "Binarizer": "binarizer"}[op]
    verdicts = {case.name: verdict(case) for case in cases_of(op, f"ai_onnx_ml.{module}")}
    assert {*verdicts.values()} == {RIGHT}


def test_a_file_need_not_name_an_opset_that_it_has_no_operator_of() -> None:
    model = model_of("Scaler", {"offset": [0.5], "scale": [2.0]}, X, {"Y": np.float32})
    model.opset_import.pop(0)
    assert [entry.domain for entry in model.opset_import] == ["ai.onnx.ml"]
    assert_as_the_runtime(model, X)


CLASSES = np.array(["setosa", "versicolor", "virginica"])
CLASSIFIERS: dict[str, Mapping[str, Any]] = {
    "TreeEnsembleClassifier": forest("class", 3),
    "SVMClassifier": {**machine(3), "classlabels_ints": None},
    "LinearClassifier": {"coefficients": [0.5, -1.0, 2.0] * 5, "intercepts": [0.5, 0.0, -0.5]},
}


def outputs_of(model: Any, x: Any) -> list[Any]:
    """What ONNX Runtime gives."""
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, {"X": x}))


@pytest.mark.parametrize("op", CLASSIFIERS)
def test_labels_that_are_texts_are_their_places(op: str) -> None:
    attributes = {**CLASSIFIERS[op], "classlabels_strings": CLASSES.tolist()}
    model = model_of(op, attributes, X, LABELS)
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.STRING
    labels, scores = outputs_of(model, X)
    places, got = graph_outputs(read(model), [X])
    assert places.dtype == np.int64
    assert CLASSES[places].tolist() == labels.tolist()
    np.testing.assert_allclose(got, scores, rtol=1e-5, atol=1e-6)


def texts_by_places(second: str) -> Any:
    """The text at the place of each row's greatest element, as scikit-learn's are exported,
    and an operator on it."""
    kind = onnx.TensorProto
    x = helper.make_tensor_value_info("X", kind.FLOAT, [7, 3])
    y = helper.make_tensor_value_info("Y", kind.STRING, None)
    nodes = [
        helper.make_node("ArgMax", ["X"], ["place"], axis=1),
        helper.make_node(
            "ArrayFeatureExtractor", ["classes", "place"], ["label"], domain="ai.onnx.ml"
        ),
        helper.make_node(second, ["label"], ["Y"]),
    ]
    texts = [helper.make_tensor("classes", kind.STRING, [3], CLASSES.tolist())]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph(nodes, "g", [x], [y], texts)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_texts_that_labels_are_taken_from_are_their_places() -> None:
    model, x = texts_by_places("Identity"), np.ascontiguousarray(X[:, :3])
    (labels,) = outputs_of(model, x)
    (places,) = graph_outputs(read(model), [x])
    assert CLASSES[places].tolist() == labels.tolist()


def test_what_computes_with_texts_is_refused() -> None:
    with pytest.raises(ModelRefused):
        read(texts_by_places("StringNormalizer"))


@pytest.mark.parametrize(
    "labels", [[0, 1, 2, 3, 9], ["a", "b", "c", "d", "e"]], ids=["int64s", "strings"]
)
def test_maps_are_a_matrix_of_their_values(labels: Any) -> None:
    kind = "strings" if isinstance(labels[0], str) else "int64s"
    model = model_of("ZipMap", {f"classlabels_{kind}": labels}, X, {"Y": np.float32})
    value = onnx.TypeProto()
    key = onnx.TensorProto.STRING if kind == "strings" else onnx.TensorProto.INT64
    value.sequence_type.elem_type.map_type.key_type = key
    value.sequence_type.elem_type.map_type.value_type.tensor_type.elem_type = 1
    model.graph.output[0].type.CopyFrom(value)
    content = model.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (maps,) = session.run(None, {"X": X})
    graph = read(model)
    np.testing.assert_array_equal(
        graph_outputs(graph, [X])[0], [[row[label] for label in labels] for row in maps]
    )
    assert isinstance(verdict_on(read_model(content, {}), graph, [X], {}), Right)
