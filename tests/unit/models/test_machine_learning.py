"""Operators of the domain `ai.onnx.ml`: what they become computes what ONNX Runtime does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from benchmarks.models.onnx_cases import RIGHT, cases_of, verdict
from tests.support.graph_values import graph_outputs
from tests.support.model_kernels import compiled
from tests.support.model_libraries import exported
from tuner.models.errors import ModelRefused
from tuner.models.files.onnx_file import read_model
from tuner.models.graph import Graph, check_graph
from tuner.models.reading import read_graph
from tuner.models.reference.node_check import verdict_on
from tuner.models.reference.verdict import Right
from tuner.models.workloads import workloads_of

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
X = np.round(np.random.default_rng(3).standard_normal((7, 5)) * 2).astype(np.float32) / 2
LABELS = {"Label": np.int64, "Scores": np.float32}


def forest(
    kind: str, targets: int, *, modes: Sequence[str] = ("LEQ",), low: float = -1.0, missing: int = 0
) -> dict[str, Any]:
    """Attributes of five random trees, of which the last one is a leaf."""
    rng = np.random.default_rng(targets)
    lists: dict[str, list[Any]] = {}

    def note(**values: Any) -> None:
        for name, value in values.items():
            lists.setdefault(name, []).append(value)

    def grow(tree: int, number: int, depth: int) -> int:
        """Adds the node and what is below it; the next free number."""
        is_leaf = depth == 0 or (depth < 3 and rng.random() < 0.3)
        mode = "LEAF" if is_leaf else f"BRANCH_{rng.choice(modes)}"
        note(nodes_treeids=tree, nodes_nodeids=number, nodes_modes=mode)
        note(nodes_featureids=0 if is_leaf else int(rng.integers(X.shape[1])))
        note(nodes_values=float(np.round(rng.standard_normal() * 2) / 2))
        note(nodes_missing_value_tracks_true=int(rng.integers(2)) * missing)
        place = len(lists["nodes_modes"]) - 1
        note(nodes_truenodeids=0, nodes_falsenodeids=0)
        if not is_leaf:
            lists["nodes_truenodeids"][place] = number + 1
            lists["nodes_falsenodeids"][place] = following = grow(tree, number + 1, depth - 1)
            return grow(tree, following, depth - 1)
        for target in range(targets):
            weight = float(rng.uniform(low, 1.0))
            note(**{f"{kind}_treeids": tree, f"{kind}_nodeids": number})
            note(**{f"{kind}_ids": target, f"{kind}_weights": weight})
        return number + 1

    for tree, depth in enumerate((4, 3, 4, 2, 0)):
        grow(tree, 0, depth)
    return lists


def model_of(
    op: str, attributes: Mapping[str, Any], x: Any, outputs: Mapping[str, Any], version: int = 3
) -> Any:
    """One operator of x; outputs are described by their types alone."""
    kind = helper.np_dtype_to_tensor_dtype
    node = helper.make_node(op, ["X"], list(outputs), domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("X", kind(x.dtype), x.shape)],
        [helper.make_tensor_value_info(n, kind(np.dtype(t)), None) for n, t in outputs.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def read(model: Any) -> Graph:
    graph = read_graph(model.SerializeToString(), {})
    check_graph(graph)
    return graph


def assert_as_the_runtime(model: Any, x: Any) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    for got, right in zip(
        graph_outputs(read(model), [x]), session.run(None, {"X": x}), strict=True
    ):
        assert got.dtype == right.dtype
        assert got.shape == right.shape
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)


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


def machine(classes: int, **more: Any) -> dict[str, Any]:
    """Attributes of a support vector classifier of random vectors."""
    rng, pairs = np.random.default_rng(classes), classes * (classes - 1) // 2
    counts = [2 + number % 2 for number in range(classes)]
    return {
        "kernel_type": "RBF",
        "kernel_params": [0.3, 0.0, 0.0],
        "vectors_per_class": counts,
        "support_vectors": rng.standard_normal(sum(counts) * X.shape[1]).tolist(),
        "coefficients": rng.standard_normal((classes - 1) * sum(counts)).tolist(),
        "rho": rng.standard_normal(pairs).tolist(),
        "classlabels_ints": [7, 0, 4, 9][:classes],
        **more,
    }


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


def assert_the_library_is_right(graph: Graph, x: Any, folder: Path) -> None:
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    library = exported(graph, kernels, folder, "classes")
    for got, right in zip(library.run_classes(x), graph_outputs(graph, [x]), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-5)


@pytest.mark.slow
def test_kernels_of_trees_compile_to_what_they_say(tmp_path: Path) -> None:
    attributes = {**forest("class", 3, modes=("LEQ", "EQ"), missing=1)}
    attributes["classlabels_int64s"] = [4, 0, 7]
    graph = read(model_of("TreeEnsembleClassifier", attributes, X, LABELS))
    x = np.where(np.random.default_rng(5).random(X.shape) < 0.2, np.float32("nan"), X)
    assert_the_library_is_right(graph, x, tmp_path / "out")


@pytest.mark.slow
def test_kernels_of_support_vectors_compile_to_what_they_say(tmp_path: Path) -> None:
    graph = read(model_of("SVMClassifier", with_probabilities(3), X, LABELS))
    assert_the_library_is_right(graph, X, tmp_path / "out")
