"""Operators of the domain `ai.onnx.ml`, of classical machine learning
(https://onnx.ai/onnx/operators): linear models, trees, and what prepares their columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tuner.models.from_onnx import support_vectors, tree_ensembles
from tuner.models.from_onnx.class_scores import class_labels, labelled, transformed
from tuner.models.from_onnx.node import Convert, Node, Results
from tuner.models.from_onnx.tree_ensembles import matrix
from tuner.models.graph import Array
from tuner.models.operators import indexing
from tuner.models.operators.contraction import matmul
from tuner.models.operators.elementwise import cast, elementwise, is_nan, same
from tuner.models.operators.movement import along, concatenate, pad, reshape
from tuner.models.operators.reduction import reduce
from tuner.models.operators.scalars import Elem, cast_to, clamp, constant, maximum, unary, where
from tuner.models.operators.values import Value
from tuner.workload.dtypes import FLOATS

_MOST_KEYS = 1 << 16  # of a LabelEncoder, each of which is compared with each element


def _list(node: Node, name: str) -> Array:
    return np.array(node.attribute(name, None) or [], np.float64)


def _linear(node: Node, x: Value, targets: int) -> Value:
    """x [n, columns] times the coefficients, [n, targets]."""
    coefficients, intercepts = _list(node, "coefficients"), _list(node, "intercepts")
    if coefficients.size != targets * x.shape[1]:
        raise node.refusal(
            f"has {coefficients.size} coefficients for {targets} results of {x.shape[1]} columns"
        )
    weights = np.ascontiguousarray(coefficients.reshape(targets, x.shape[1]).T)
    scores = matmul(x, x.builder.constant(weights, x.dtype))
    if not intercepts.size:
        return scores
    if intercepts.size != targets:
        raise node.refusal(f"has {intercepts.size} intercepts for {targets} results")
    row = x.builder.constant(intercepts.reshape(1, -1), x.dtype)
    return elementwise("intercepts", lambda e, b: e + b, scores, row)


def linear_regressor(node: Node) -> Value:
    if node.attribute("post_transform", "NONE") != "NONE":
        raise node.refusal("transforms its results; only the post_transform NONE has an expression")
    return cast(_linear(node, matrix(node), int(node.attribute("targets", 1))), "float32")


def linear_classifier(node: Node) -> Results:
    labels = class_labels(node, "classlabels_ints")
    transform = str(node.attribute("post_transform", "NONE"))
    x = matrix(node)
    count = _list(node, "coefficients").size // max(x.shape[1], 1)
    scores = _linear(node, x, count)
    if count == 1:
        raise node.refusal("has the scores of one class of two, which runtimes compute differently")
    if count != labels.size:
        raise node.refusal(f"has {count} results for {labels.size} labels")
    return [labelled(scores, labels), cast(transformed(node, scores, transform), "float32")]


def scaler(node: Node) -> Value:
    """(x - offset) * scale, of each column or of all."""
    x = node[0] if node[0].dtype == "float64" else cast(node[0], "float32")
    offset, scale = (x.builder.constant(_list(node, n), x.dtype) for n in ("offset", "scale"))
    result = elementwise("scaler", lambda e, o, s: (e - o) * s, x, offset, scale)
    return cast(result, "float32")


def normalizer(node: Node) -> Value:
    """Each row over its norm."""
    norm, x = str(node.attribute("norm", "MAX")), matrix(node)
    sizes: Mapping[str, Callable[[Elem], Elem]] = {
        "L1": lambda e: unary("abs", e),
        "L2": lambda e: e * e,
    }
    if norm not in sizes:
        raise node.refusal(f"has the norm {norm}, which runtimes compute differently")
    with x.builder.kernel("normalizer"):
        total = reduce("sum", "sum", x, [1], keep=True, function=sizes[norm])
        if norm == "L2":
            total = elementwise("root", lambda e: unary("sqrt", e), total)
        result = elementwise("normalizer", lambda e, s: e / maximum(s, 1e-30), x, total)
    return cast(reshape(result, node[0].shape), "float32")


def binarizer(node: Node) -> Value:
    """1 for elements above the threshold, 0 for others."""
    x, threshold = node[0], float(node.attribute("threshold", 0.0))

    def body(e: Elem) -> Elem:
        number = e if e.dtype in FLOATS else cast_to("float32", e)
        return where(number > threshold, constant(1, e.dtype), 0)

    return elementwise("binarizer", body, x)


def imputer(node: Node) -> Value:
    """Numbers in the place of those of one value, which may be NaN: of each column or all."""
    x = node[0]
    kind = "float" if x.dtype in FLOATS else "int64"
    values = _list(node, f"imputed_value_{kind}s")
    missing = node.attribute(f"replaced_value_{kind}", 0)
    if not values.size or not x.rank or values.size not in (1, x.shape[-1]):
        raise node.refusal(f"has {values.size} imputed values for {list(x.shape)}")

    def body(e: Elem, value: Elem) -> Elem:
        is_missing = is_nan(e) if missing != missing else e.equals(missing)
        return where(is_missing, value, e)

    return elementwise("imputer", body, x, x.builder.constant(values, x.dtype))


def array_feature_extractor(node: Node) -> Value:
    """Columns by their numbers; a vector gives a matrix of one row."""
    x, columns = node[0], reshape(node[1], [node[1].elements])
    chosen = indexing.gather(x, columns, x.rank - 1)
    return reshape(chosen, [1, columns.elements]) if x.rank == 1 else chosen


def feature_vectorizer(node: Node) -> Value:
    """Matrices side by side, each cut or filled up with zeros to its number of columns."""
    widths = [int(width) for width in node.attribute("inputdimensions", None) or []]
    parts = []
    for place in range(len(node.inputs)):
        x = node[place]
        x = reshape(x, [x.elements, 1]) if x.rank == 1 else x
        if x.rank != 2:
            raise node.refusal(f"takes matrices, not {list(x.shape)}")
        width = widths[place] if place < len(widths) else x.shape[1]
        if width > x.shape[1]:
            x = pad(x, [0, 0], [0, width - x.shape[1]], "constant")
        parts.append(cast(along(x, 1, 0, width), "float32"))
    return concatenate(parts, 1)


def one_hot_encoder(node: Node) -> Value:
    """1 at the place of each element's category; nothing but zeros for any other."""
    categories = [int(number) for number in node.attribute("cats_int64s", None) or []]
    if not categories:
        raise node.refusal("has no categories that are integers; texts are not taken")
    x = node[0]
    numbers = x.builder.constant(np.array(categories, np.int64))

    def body(*i: Elem) -> Elem:
        is_own = cast_to("int64", x[i[:-1]]).equals(numbers[i[-1]])
        return where(is_own, constant(1, "float32"), 0)

    return x.builder.compute("one_hot", [*x.shape, len(categories)], body, dtype="float32")


def label_encoder(node: Node) -> Value:
    """The value of the key that an element equals, or the default."""
    x = node[0]
    keys, values = _of_numbers(node, "keys"), _of_numbers(node, "values")
    if len(keys) != len(values) or not len(keys):
        raise node.refusal(f"has {len(keys)} keys and {len(values)} values")
    if len(keys) > _MOST_KEYS:
        raise node.refusal(f"has {len(keys)} keys, the limit is {_MOST_KEYS}")
    default = _default(node, values)
    builder = x.builder
    table = builder.constant(np.append(values, np.asarray(default, values.dtype)))
    row = builder.constant(keys, x.dtype)
    count = len(keys)

    def place(*i: Elem) -> Elem:
        *outer, k = i
        return where(same(x[tuple(outer)], row[k]), cast_to("int32", k), count)

    places = builder.reduce("key", "min", x.shape, [count], place, dtype="int32")
    return builder.compute(
        "label",
        x.shape,
        lambda *i: table[clamp(cast_to("int64", places[i]), 0, count)],
        dtype=table.dtype,
    )


def _of_numbers(node: Node, name: str) -> Array:
    for kind, dtype in (("floats", np.float32), ("int64s", np.int64)):
        if (given := node.attribute(f"{name}_{kind}", None)) is not None:
            return np.array(given, dtype)
    tensor = node.attribute(f"{name}_tensor", None)
    if tensor is None or tensor.dtype.kind not in "fiub":
        raise node.refusal(f"has {name} that are no numbers; texts are not taken")
    return np.asarray(tensor).reshape(-1)


def _default(node: Node, values: Array) -> float | int:
    tensor = node.attribute("default_tensor", None)
    if tensor is not None:
        default: float | int = np.asarray(tensor).reshape(-1)[0].item()
        return default
    if values.dtype.kind == "f":
        return float(node.attribute("default_float", -0.0))
    return int(node.attribute("default_int64", -1))


def zip_map(node: Node) -> Value:
    """The matrix of the maps' values, a row each, whose columns are the classes in the order
    of their labels: the arrays of a library have no keys."""
    labels = node.attribute("classlabels_int64s", None) or node.attribute(
        "classlabels_strings", None
    )
    columns = node[0].shape[-1]
    if len(labels or []) != columns:
        raise node.refusal(f"has {len(labels or [])} labels for {columns} columns")
    return matrix(node)


TABLE: Mapping[str, Convert] = {
    **tree_ensembles.TABLE,
    "ArrayFeatureExtractor": array_feature_extractor,
    "Binarizer": binarizer,
    "FeatureVectorizer": feature_vectorizer,
    "Imputer": imputer,
    "LabelEncoder": label_encoder,
    "LinearClassifier": linear_classifier,
    "LinearRegressor": linear_regressor,
    "Normalizer": normalizer,
    "OneHotEncoder": one_hot_encoder,
    "SVMClassifier": support_vectors.classifier,
    "SVMRegressor": support_vectors.regressor,
    "Scaler": scaler,
    "ZipMap": zip_map,
}
