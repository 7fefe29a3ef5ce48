"""Derivatives compared with central differences of the float64 reference."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.workload.derivative.workload import derivative_of
from tuner.workload.dtypes import FLOATS
from tuner.workload.expression import Expression
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.workload import Workload

Arrays = dict[str, NDArray[Any]]
STEP = 1e-6


def exact_inputs(expression: Expression, seed: int) -> Arrays:
    """Normal inputs, floats in float64."""
    return {
        name: array if array.dtype.kind in "iub" else array.astype(np.float64)
        for name, array in make_inputs(expression, seed).items()
    }


def has_derivative(workload: Workload) -> bool:
    """Whether it computes floating-point numbers. Integers have none, whatever the operator."""
    expression = workload.expression
    return any(expression.tensor(name).dtype in FLOATS for name in expression.outputs)


def difference(
    workload: Workload, seed: int = 1, wrt: tuple[str, ...] | None = None
) -> tuple[float, Workload]:
    """The relative difference of a workload's derivative from its slope along a random
    direction of each input, the greatest of all; and the derivative.

    A derivative that is wrong in any element has another slope along almost every direction.
    """
    expression = workload.expression
    derived = derivative_of(workload, wrt)
    inputs = exact_inputs(expression, seed)
    rng = np.random.default_rng(seed)
    weights = {
        name: rng.standard_normal(expression.tensor(name).shape) for name in expression.outputs
    }
    arrays = {
        tensor.name: inputs[tensor.name]
        if tensor.name in inputs
        else weights[_differentiated(tensor.name, weights)]
        for tensor in derived.expression.inputs
    }
    return max(
        _distance(expression, inputs, weights, _differentiated(name, inputs), gradient, rng)
        for name, gradient in evaluate(derived.expression, arrays).items()
    ), derived


def _differentiated(name: str, names: Iterable[str]) -> str:
    """The tensor whose derivative has a name, which may have a number."""
    (original,) = (given for given in names if re.fullmatch(rf"d{given}(_\d)?", name))
    return original


def _distance(
    expression: Expression,
    inputs: Arrays,
    weights: Arrays,
    name: str,
    gradient: NDArray[Any],
    rng: np.random.Generator,
) -> float:
    assert gradient.shape == inputs[name].shape
    direction = rng.standard_normal(inputs[name].shape)

    def loss(distance: float) -> float:
        moved = evaluate(expression, inputs | {name: inputs[name] + distance * direction})
        # The greatest of no values is infinite, wherever the inputs move.
        terms = (weights[output] * moved[output] for output in weights)
        return sum(float(term[np.isfinite(term)].sum()) for term in terms)

    slope = (loss(STEP) - loss(-STEP)) / (2 * STEP)
    size = float(np.abs(gradient * direction).sum())
    return abs(slope - float((gradient * direction).sum())) / max(size, abs(slope), 1e-3)
