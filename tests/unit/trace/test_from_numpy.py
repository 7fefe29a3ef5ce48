"""Recorded calls of NumPy as graphs: they compute what NumPy does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.traced_calls import call, evaluated
from tuner.models.errors import ModelRefused
from tuner.trace.from_numpy import TABLE, bound_numpy

RNG = np.random.default_rng(0)
UNIVERSAL = [
    name for name in TABLE if isinstance(getattr(np, name.removeprefix("numpy."), None), np.ufunc)
]


def sample(*shape: int, dtype: str = "float32") -> Any:
    """Numbers from 0.1 to 0.9, where every function is defined; integers from 1 to 5."""
    if np.dtype(dtype).kind == "f":
        return RNG.uniform(0.1, 0.9, shape).astype(dtype)
    return RNG.integers(1, 6, shape).astype(dtype)


def holds(operator: str, expected: Any, *arguments: Any) -> None:
    binding = bound_numpy(call(operator, *arguments))
    result = evaluated(binding.graph, *(arguments[number] for number in binding.inputs))
    assert binding.result is not None and binding.result.shape == np.shape(expected)
    result = result.reshape(np.shape(expected))
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("operator", sorted(set(UNIVERSAL) - {"numpy.matmul"}))
def test_universal_functions(operator: str) -> None:
    function = getattr(np, operator.removeprefix("numpy."))
    arguments = [sample(3, 1), sample(1, 4)][: function.nin]
    holds(operator, function(*arguments), *arguments)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float64"])
@pytest.mark.parametrize("operator", ["numpy.add", "numpy.divide", "numpy.exp", "numpy.less"])
def test_dtypes_are_those_that_numpy_resolves(operator: str, dtype: str) -> None:
    function = getattr(np, operator.removeprefix("numpy."))
    arguments = [sample(3, 4, dtype=dtype), sample(4)][: function.nin]
    holds(operator, function(*arguments), *arguments)


def test_numbers_of_python_are_inputs_and_small_integers_constants() -> None:
    x = sample(5)
    assert bound_numpy(call("numpy.multiply", x, 0.3)).inputs == (0, 1)
    assert bound_numpy(call("numpy.multiply", 0.3, x)).inputs == (0, 1)
    assert bound_numpy(call("numpy.power", x, 3)).inputs == (0,)
    holds("numpy.multiply", x * 0.25, x, 0.25)
    holds("numpy.power", x**3, x, 3)


@pytest.mark.parametrize(
    ("left", "right"), [((4, 6), (6, 3)), ((2, 4, 6), (6, 3)), ((6,), (6, 3)), ((6,), (6,))]
)
def test_products(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = sample(*left), sample(*right)
    holds("numpy.matmul", a @ b, a, b)
    holds("numpy.matmul", a @ b, a, np.asfortranarray(b))
    if len(left) < 3:
        holds("numpy.dot", np.dot(a, b), a, b)
    if (len(left), len(right)) == (2, 2):
        holds("numpy.einsum", np.einsum("ik,kj->ji", a, b), "ik,kj->ji", a, b)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean"])
@pytest.mark.parametrize("axis", [None, 0, -1, [0, 2]])
def test_reductions(name: str, axis: Any) -> None:
    x = sample(2, 3, 4)
    expected = getattr(np, name)(x, axis=tuple(axis) if isinstance(axis, list) else axis)
    named = [] if axis is None else [{"name": "axis", "value": axis}]
    holds(f"numpy.{name}", expected, x, *named)
    if isinstance(axis, int):
        holds(f"numpy.{name}", expected, x, axis)


def test_choices() -> None:
    condition, x = sample(4, 5) > 0.5, sample(4, 5)
    holds("numpy.where", np.where(condition, x, x * 2), condition, x, x * 2)


@pytest.mark.parametrize(
    ("operator", "arguments", "says"),
    [
        ("numpy.linalg.inv", (np.ones((3, 3)),), "has no expression yet"),
        ("numpy.add", (np.ones(6)[::2], np.ones(3)), "with gaps"),
        ("numpy.add", (np.broadcast_to(np.ones(3), (4, 3)), np.ones(3)), "with gaps"),
        ("numpy.exp", (np.ones(3, "complex64"),), "complex64; kernels take"),
        ("numpy.exp", (np.ones((0, 3)),), "no elements"),
        ("numpy.sum", (np.ones(3, "int8"),), "other integers"),
        ("numpy.add", (np.ones(3), {"type": "decimal.Decimal"}), "no array or number"),
        ("numpy.exp", (np.ones(3), {"name": "where", "shape": [3], "strides": [1],
                                    "dtype": "bool"}), "with where="),
        ("numpy.matmul", (np.ones((3, 4)), np.ones((5, 3))), "has no expression: a product"),
    ],
)  # fmt: skip
def test_what_has_no_expression_says_why(
    operator: str, arguments: tuple[Any, ...], says: str
) -> None:
    with pytest.raises(ModelRefused, match=says):
        bound_numpy(call(operator, *arguments))
