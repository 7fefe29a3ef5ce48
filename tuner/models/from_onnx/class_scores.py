"""What classifiers of the domain `ai.onnx.ml` make of their scores."""

from __future__ import annotations

import numpy as np

from tuner.models.from_onnx.node import Node
from tuner.models.graph import Array
from tuner.models.operators.elementwise import elementwise, sigmoid
from tuner.models.operators.indexing import gather
from tuner.models.operators.normalization import softmax
from tuner.models.operators.reduction import arg_extreme, reduce
from tuner.models.operators.scalars import Elem, constant, unary, where
from tuner.models.operators.values import Value

_ZERO = 1e-7  # numbers up to it are none to SOFTMAX_ZERO


def class_labels(node: Node, name: str) -> Array:
    """The labels of the classes, integers. Raises ModelRefused for texts."""
    if node.attribute("classlabels_strings", None):
        raise node.refusal("gives texts as labels; train or export it with integers as classes")
    labels = np.array(node.attribute(name, None) or [], np.int64)
    if labels.size < 2:
        raise node.refusal(f"has {labels.size} labels of classes; two are needed")
    return labels


def labelled(scores: Value, labels: Array) -> Value:
    """The label of the first greatest score of each row."""
    places = arg_extreme(scores, 1, greatest=True, last=False, keep=False)
    if (labels == np.arange(labels.size)).all():
        return places
    return gather(scores.builder.constant(labels), places, 0)


def transformed(node: Node, scores: Value, transform: str) -> Value:
    """Scores [n, classes] after the transformation of this name. Raises ModelRefused."""
    match transform:
        case "NONE":
            return scores
        case "LOGISTIC":
            return elementwise("logistic", sigmoid, scores)
        case "SOFTMAX":
            return softmax(scores, [1])
        case "SOFTMAX_ZERO":
            return _softmax_of_others(scores)
        case _:
            raise node.refusal(f"has the post_transform {transform!r}, which has no expression")


def _softmax_of_others(scores: Value) -> Value:
    """A softmax in which scores of 0 stay 0, and rows of nothing else become a half."""
    with scores.builder.kernel("softmax_zero"):
        top = reduce("max", "max", scores, [1], keep=True)

        def power(e: Elem, m: Elem) -> Elem:
            is_zero = (e <= _ZERO) & (e >= -_ZERO)
            return where(is_zero, e * unary("exp", -m), unary("exp", e - m))

        powers = elementwise("exp", power, scores, top)
        total = reduce("sum", "sum", powers, [1], keep=True)
        return elementwise(
            "softmax_zero",
            lambda e, s: where(s.equals(0), constant(0.5, e.dtype), e / s),
            powers,
            total,
        )
