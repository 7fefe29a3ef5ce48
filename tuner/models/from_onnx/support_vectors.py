"""Support vector machines of the domain `ai.onnx.ml`."""

from __future__ import annotations

import numpy as np

from tuner.models.from_onnx.node import Node
from tuner.models.from_onnx.tree_ensembles import matrix
from tuner.models.graph import Array
from tuner.models.operators.contraction import matmul
from tuner.models.operators.elementwise import cast, elementwise
from tuner.models.operators.movement import transpose
from tuner.models.operators.scalars import Elem, constant, unary, where
from tuner.models.operators.values import Value

_MOST_DEGREES = 16


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
