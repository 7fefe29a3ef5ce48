"""Arithmetic and comparisons of special floats in kernels: what NumPy computes, and not what
a simplifier takes for the same."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import get_args

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray

from tests.support.targets import SM_90, host_target
from tuner.lowering.compiler import compile_program
from tuner.lowering.cuda.codegen import cuda_kernels
from tuner.spaces.by_target import space_of
from tuner.spaces.program.program import Block, MathFunctions, Program
from tuner.workload.expression import (
    Axis,
    Binary,
    Const,
    Expression,
    Read,
    Scalar,
    Select,
    Stage,
    Tensor,
    Unary,
    UnaryOp,
    Var,
)
from tuner.workload.reference import evaluate
from tuner.workload.scalar_operators import BINARY_OPERATORS, UNARY_OPERATORS
from tuner.workload.spec import workload_from_notation

VALUES = np.array(
    [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-40, 1.1754944e-38, 3.4e38, -3.4e38,
     88.5, 88.8, -87.0, -104.0, 0.5, -0.5, 1.0, -1.0, 2.5, -2.5, 3.0, 1e10, 8388609.0],
    np.float32,
)  # fmt: skip
PAIRS = np.array(list(itertools.product(VALUES, VALUES)), np.float32).T.copy()
A, B = (Read(name, (Var("i"),)) for name in "AB")
ZERO, HALF, ONE = (Const(value, "float32") for value in (0.0, 0.5, 1.0))
COMPARISONS = [op for op, row in BINARY_OPERATORS.items() if row.is_comparison]


def chosen(condition: Scalar) -> Scalar:
    """Which side is taken shows in the result."""
    return Select(condition, HALF, ZERO)


def negated(condition: Scalar) -> Scalar:
    return Unary("not", condition)


CONDITIONS: Mapping[str, Scalar] = {
    f"{name} {op}": chosen(condition)
    for op in COMPARISONS
    for name, condition in {
        "plain": Binary(op, A, B),
        "negated": negated(Binary(op, A, B)),
        "of itself": Binary(op, A, A),
        "of a constant": negated(Binary(op, A, HALF)),
        "in a conjunction": negated(Binary("and", Binary(op, A, B), Binary("lt", A, ZERO))),
        "in a disjunction": Binary("or", Binary(op, A, B), negated(Binary("le", B, ZERO))),
    }.items()
} | {
    "less or greater": chosen(Binary("or", Binary("lt", A, B), Binary("lt", B, A))),
    "at most or greater": chosen(Binary("or", Binary("le", A, B), Binary("gt", A, B))),
    "not less, but at least": Select(
        Binary("lt", A, B), HALF, Select(Binary("ge", A, B), ONE, ZERO)
    ),
    "not at most, but greater": Select(
        Binary("le", A, B), HALF, Select(Binary("gt", A, B), ONE, ZERO)
    ),
}
Function = Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[np.float32]]
SUM, OTHER_SUM = Binary("add", A, B), Binary("add", B, A)
ARITHMETIC: Mapping[str, tuple[Scalar, Function]] = {
    "x - x": (Binary("sub", A, A), lambda x, y: x - x),
    "0 * x": (Binary("mul", ZERO, A), lambda x, y: 0 * x),
    "x * 0": (Binary("mul", A, ZERO), lambda x, y: x * 0),
    "0 / x": (Binary("div", ZERO, A), lambda x, y: np.float32(0) / x),
    "(y > 0 ? y : x) - x": (
        Binary("sub", Select(Binary("gt", B, ZERO), B, A), A),
        lambda x, y: np.where(y > 0, y, x) - x,
    ),
    "(y > 0 ? x : y) - x": (
        Binary("sub", Select(Binary("gt", B, ZERO), A, B), A),
        lambda x, y: np.where(y > 0, x, y) - x,
    ),
    "y > 0 ? 0 : -0": (
        Select(Binary("gt", B, ZERO), ZERO, Const(-0.0, "float32")),
        lambda x, y: np.where(y > 0, np.float32(0), np.float32(-0.0)),
    ),
    "x / x": (Binary("div", A, A), lambda x, y: x / x),
    "x / inf": (Binary("div", A, Const(math.inf, "float32")), lambda x, y: x / np.float32("inf")),
    "x / 3e38": (Binary("div", A, Const(3e38, "float32")), lambda x, y: x / np.float32(3e38)),
    "x / 1e-39": (Binary("div", A, Const(1e-39, "float32")), lambda x, y: x / np.float32(1e-39)),
    "x + 0": (Binary("add", A, ZERO), lambda x, y: x + 0),
    "0 - x": (Binary("sub", ZERO, A), lambda x, y: 0 - x),
    "-x": (Unary("neg", A), lambda x, y: -x),
    "(x + y) - x": (Binary("sub", SUM, A), lambda x, y: (x + y) - x),
    "(x + y) - y": (Binary("sub", SUM, B), lambda x, y: (x + y) - y),
    "x - (x + y)": (Binary("sub", A, SUM), lambda x, y: x - (x + y)),
    "x - (y + x)": (Binary("sub", A, OTHER_SUM), lambda x, y: x - (y + x)),
    "max(x, min(x, y))": (
        Binary("max", A, Binary("min", A, B)),
        lambda x, y: np.maximum(x, np.minimum(x, y)),
    ),
    "x % y": (Binary("floormod", A, B), np.mod),
    "x or y": (Select(Unary("isnan", A), B, A), lambda x, y: np.where(np.isnan(x), y, x)),
    "y or x": (
        Select(negated(Unary("isnan", A)), B, A),
        lambda x, y: np.where(np.isnan(x), x, y),
    ),
}


def computed(
    body: Scalar, inputs: Mapping[str, NDArray[np.float32]], how: MathFunctions = "libm"
) -> NDArray[np.float32]:
    """What a kernel computes for each element of the inputs."""
    (length,) = {len(array) for array in inputs.values()}
    program = Program(
        inputs=tuple(Tensor(name=name, shape=(length,), dtype="float32") for name in inputs),
        outputs=(Tensor(name="Y", shape=(length,), dtype="float32"),),
        buffers=(),
        blocks=(
            Block(
                name="Y",
                axes=(Axis(name="i", extent=length),),
                buffer="Y",
                indices=(Var("i"),),
                body=body,
                math_functions=how,
            ),
        ),
    )
    out = tvm.runtime.empty((length,), "float32")
    compile_program(program, host_target(), "k").generated["k"](
        *map(tvm.runtime.tensor, inputs.values()), out
    )
    result: NDArray[np.float32] = out.numpy()
    return result


def expected(body: Scalar, inputs: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float64]:
    """What the float64 reference has for them."""
    (length,) = {len(array) for array in inputs.values()}
    stage = Stage(name="Y", axes=(Axis(name="i", extent=length),), body=body, dtype="float32")
    tensors = tuple(Tensor(name=name, shape=(length,), dtype="float32") for name in inputs)
    expression = Expression(name="k", inputs=tensors, stages=(stage,), outputs=("Y",))
    result: NDArray[np.float64] = evaluate(expression, inputs)["Y"]
    return result


@pytest.mark.parametrize("case", CONDITIONS)
def test_comparisons(case: str) -> None:
    inputs = dict(zip("AB", PAIRS, strict=True))
    body = CONDITIONS[case]
    np.testing.assert_array_equal(computed(body, inputs), expected(body, inputs))


@pytest.mark.parametrize("case", ARITHMETIC)
def test_arithmetic(case: str) -> None:
    """In float32. Which zero a remainder or a maximum is does not count."""
    body, function = ARITHMETIC[case]
    got = computed(body, dict(zip("AB", PAIRS, strict=True)))
    with np.errstate(all="ignore"):
        want = function(*PAIRS)
    np.testing.assert_array_equal(got, want)
    if case not in ("x % y", "max(x, min(x, y))"):
        np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


def test_a_sum_is_rounded_before_a_term_is_taken_off() -> None:
    """By which kernels round to whole numbers."""
    large = Const(1.5 * 2.0**23, "float32")
    inputs = {"A": np.linspace(-9, 9, 77, dtype=np.float32)}
    got = computed(Binary("sub", Binary("add", A, large), large), inputs)
    np.testing.assert_array_equal(got, np.rint(inputs["A"]))


@pytest.mark.parametrize("how", get_args(MathFunctions))
def test_an_error_function_is_rounded_before_one_is_added(how: MathFunctions) -> None:
    """The tail of GELU: huge negative numbers times what is not quite 0."""
    body = Binary("mul", A, Binary("add", Const(1.0, "float32"), Unary("erf", A)))
    inputs = {"A": np.array([-math.inf, -3e38, -1e4, -5.0, 0.0, 3.0, math.inf], np.float32)}
    np.testing.assert_allclose(
        computed(body, inputs, how), expected(body, inputs), rtol=1e-6, atol=1e-5
    )


@pytest.mark.parametrize("op", [op for op, row in UNARY_OPERATORS.items() if row.is_function])
@pytest.mark.parametrize("how", get_args(MathFunctions))
def test_functions(op: UnaryOp, how: MathFunctions) -> None:
    body = Unary(op, A)
    got, want = computed(body, {"A": VALUES}, how), expected(body, {"A": VALUES})
    with np.errstate(over="ignore"):
        want = want.astype(np.float32)
    np.testing.assert_allclose(got, want, rtol=2.0**-21, atol=2.0**-126)
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


def test_constants_of_gpu_kernels_have_no_address() -> None:
    text = "kernel k(X: f32[64]) -> (Y: f32[64]) { Y[i] = 0 * X[i] }"
    space = space_of(workload_from_notation(text, {}), SM_90, 1)
    (point,) = space.space.sample(np.random.default_rng(3), 1)
    source = cuda_kernels(space.program(space.space.config(point)), SM_90, "k").text
    assert "(0x0p+0f/*0.000000e+00*/ * X_ptr" in source
