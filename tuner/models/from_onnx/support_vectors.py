"""Support vector machines of the domain `ai.onnx.ml`."""

from __future__ import annotations

import numpy as np

from tuner.models.from_onnx.class_scores import class_labels, labelled, transformed
from tuner.models.from_onnx.node import Node, Results
from tuner.models.from_onnx.tree_ensembles import matrix
from tuner.models.graph import Array
from tuner.models.operators.contraction import matmul
from tuner.models.operators.coupling import coupled
from tuner.models.operators.elementwise import cast, elementwise, sigmoid
from tuner.models.operators.movement import concatenate, transpose
from tuner.models.operators.scalars import Elem, clamp, constant, unary, where
from tuner.models.operators.values import Value

_MOST_DEGREES = 16
_LEAST = 1e-7  # that a probability of a pair is away from 0 and 1


def regressor(node: Node) -> Value:
    """The sum of the kernels of a row and each support vector, times their coefficients. Of
    one class it is the side that a row lies on, 1 or -1."""
    if node.attribute("post_transform", "NONE") != "NONE":
        raise node.refusal("transforms its results; only the post_transform NONE has an expression")
    x, coefficients = matrix(node), _floats(node, "coefficients")
    count = int(node.attribute("n_supports", 0))
    rho = _floats(node, "rho")
    terms = x if count <= 0 else _kernels(node, x, count)
    if coefficients.size != terms.shape[1] or rho.size != 1:
        raise node.refusal(
            f"has {coefficients.size} coefficients for {terms.shape[1]} terms, and {rho.size} "
            "numbers rho"
        )
    scores = matmul(terms, x.builder.constant(coefficients.reshape(-1, 1), x.dtype))
    offset, is_one_class = float(rho[0]), bool(node.attribute("one_class", 0))

    def body(e: Elem) -> Elem:
        score = e + offset
        return where(score > 0, constant(1, e.dtype), -1) if is_one_class else score

    return cast(elementwise("support_vectors", body, scores), "float32")


def classifier(node: Node) -> Results:
    """The class that wins most pairs, and the scores of the pairs, or with `prob_a` the
    probabilities of the classes. Of two classes both have the score, with opposite signs."""
    labels, x = class_labels(node, "classlabels_ints"), matrix(node)
    transform = str(node.attribute("post_transform", "NONE"))
    slopes, offsets = _floats(node, "prob_a"), _floats(node, "prob_b")
    coefficients = _of_pairs(node, labels.size)
    pairs = coefficients.shape[1]
    rho = _floats(node, "rho")
    if rho.size != pairs or (slopes.size, offsets.size) not in ((0, 0), (pairs, pairs)):
        raise node.refusal(
            f"has {rho.size} numbers rho, {slopes.size} prob_a and {offsets.size} prob_b for "
            f"{pairs} pairs of classes"
        )
    products = matmul(
        _kernels(node, x, len(coefficients)), x.builder.constant(coefficients, x.dtype)
    )
    row = x.builder.constant(rho.reshape(1, -1), x.dtype)
    scores = elementwise("rho", lambda e, r: e + r, products, row)
    label = labelled(_votes(scores, labels.size), labels)
    if slopes.size:
        scores = coupled(_of_first(scores, slopes, offsets), labels.size)
    elif labels.size == 2:
        if transform != "NONE" or (coefficients >= 0).all():
            raise node.refusal(
                f"has two classes without probabilities, the post_transform {transform} and the "
                f"least coefficient {coefficients.min():g}, which runtimes compute differently"
            )
        scores = concatenate([elementwise("other", lambda e: -e, scores), scores], 1)
    return [label, cast(transformed(node, scores, transform), "float32")]


def _of_pairs(node: Node, classes: int) -> Array:
    """What each support vector counts in each pair of classes, [vectors, pairs]."""
    counts = [int(count) for count in node.attribute("vectors_per_class", None) or []]
    coefficients = _floats(node, "coefficients")
    if not sum(counts):
        raise node.refusal(
            "has no support vectors, which runtimes compute differently; export it as a "
            "LinearClassifier"
        )
    if len(counts) != classes or min(counts) < 0:
        raise node.refusal(f"has vectors_per_class {counts[:16]} of {classes} classes")
    if coefficients.size != (classes - 1) * sum(counts):
        raise node.refusal(
            f"has {coefficients.size} coefficients for {sum(counts)} vectors of {classes} classes"
        )
    rows, owners = coefficients.reshape(classes - 1, -1), np.repeat(np.arange(classes), counts)
    return np.stack(
        [
            np.where(owners == i, rows[j - 1], np.where(owners == j, rows[i], 0.0))
            for i, j in zip(*np.triu_indices(classes, 1), strict=True)
        ],
        axis=1,
    )


def _votes(scores: Value, classes: int) -> Value:
    """How many of its pairs each class wins, [rows, classes], by the scores of the pairs."""
    first, second = (scores.builder.constant(side) for side in np.triu_indices(classes, 1))

    def vote(row: Elem, own: Elem, pair: Elem) -> Elem:
        winner = where(scores[row, pair] > 0, first[pair], second[pair])
        return where(winner.equals(own), constant(1, "int32"), 0)

    rows, pairs = scores.shape
    return scores.builder.reduce("votes", "sum", [rows, classes], [pairs], vote, dtype="int32")


def _of_first(scores: Value, slopes: Array, offsets: Array) -> Value:
    """The probability of the first class of each pair: Platt, "Probabilistic Outputs for
    Support Vector Machines", 1999."""
    a, b = (scores.builder.constant(n.reshape(1, -1), scores.dtype) for n in (slopes, offsets))

    def body(score: Elem, slope: Elem, offset: Elem) -> Elem:
        return clamp(sigmoid(-(score * slope + offset)), _LEAST, 1 - _LEAST)

    return elementwise("of_first", body, scores, a, b)


def _kernels(node: Node, x: Value, count: int) -> Value:
    """The kernel of each row of x, [rows, columns], and each support vector."""
    rows, columns = x.shape
    kind = str(node.attribute("kernel_type", "LINEAR")).upper()
    given = [*_floats(node, "kernel_params"), 0.0, 0.0, 0.0]
    gamma, summand, degree = (float(number) for number in given[:3])
    numbers = _floats(node, "support_vectors")
    if numbers.size != count * columns:
        raise node.refusal(f"has {numbers.size} numbers in {count} vectors of {columns} columns")
    vectors = x.builder.constant(numbers.reshape(count, columns), x.dtype)
    if kind == "RBF":

        def square(i: Elem, j: Elem, k: Elem) -> Elem:
            apart = x[i, k] - vectors[j, k]
            return apart * apart

        with x.builder.kernel("rbf"):
            squares = x.builder.reduce("squares", "sum", [rows, count], [columns], square)
            return elementwise("rbf", lambda e: unary("exp", e * -gamma), squares)
    dots = matmul(x, transpose(vectors, [1, 0]))
    match kind:
        case "LINEAR":
            return dots
        case "SIGMOID":
            return elementwise("sigmoid", lambda e: unary("tanh", e * gamma + summand), dots)
        case "POLY" if degree == int(degree) and 0 <= degree <= _MOST_DEGREES:
            return elementwise("poly", lambda e: _power(e * gamma + summand, int(degree)), dots)
    raise node.refusal(f"has the kernel {kind} of degree {degree:g}, which has no expression")


def _power(e: Elem, degree: int) -> Elem:
    power = constant(1, e.dtype)
    for _ in range(degree):
        power = power * e
    return power


def _floats(node: Node, name: str) -> Array:
    return np.array(node.attribute(name, None) or [], np.float64)
