"""Derivatives of expressions: central differences of every operator, kinks, gathers, sums
that stay plain, and what has none."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.support.derivatives import difference, has_derivative
from tests.support.operator_samples import combinations
from tuner.errors import WorkloadError
from tuner.workload.catalogue import CATALOGUE
from tuner.workload.derivative.algebra import is_plain_product
from tuner.workload.derivative.workload import derivative_of
from tuner.workload.expression import reads
from tuner.workload.operator import Operator
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec, workload_from_notation, workload_from_params
from tuner.workload.workload import Workload

TOLERANCE = 1e-6
WITHOUT = "has no derivative: no output depends on an input of floating-point numbers"


def checked(operator: Operator, step: int) -> None:
    for params in list(combinations(operator))[::step]:
        workload = workload_from_params(operator.name, params)
        if not has_derivative(workload):
            with pytest.raises(WorkloadError, match=WITHOUT):
                derivative_of(workload)
        else:
            assert greatest_difference(workload) < TOLERANCE, params


def greatest_difference(workload: Workload) -> float:
    """By all inputs at once, or one at a time where one program does not hold all."""
    try:
        return difference(workload)[0]
    except WorkloadError as error:
        if "ask for fewer inputs at a time" not in str(error):
            raise
    inputs = (tensor for tensor in workload.expression.inputs if "float" in tensor.dtype)
    return max(difference(workload, wrt=(tensor.name,))[0] for tensor in inputs)


@pytest.mark.parametrize("operator", CATALOGUE, ids=lambda operator: operator.name)
def test_operators(operator: Operator) -> None:
    checked(operator, 9)


@pytest.mark.slow
@pytest.mark.parametrize("operator", CATALOGUE, ids=lambda operator: operator.name)
def test_operators_in_all_combinations(operator: Operator) -> None:
    checked(operator, 1)


def of_text(text: str, wrt: tuple[str, ...] | None = None) -> Workload:
    return derivative_of(workload_from_notation(text, {}), wrt)


def of_function(text: str) -> Workload:
    """A function of one tensor, and perhaps another."""
    second = ", Z: f64[9]" if "Z[i]" in text else ""
    kernel = f"kernel f(X: f64[9]{second}) -> (Y: f64[9]) {{ Y[i] = {text} }}"
    return workload_from_notation(kernel, {})


@pytest.mark.parametrize(
    "text",
    [
        *(f"{name}(X[i])" for name in ("exp", "tanh", "erf", "sin", "cos", "sinh", "cosh")),
        *(f"{name}(X[i])" for name in ("atan", "asinh", "abs")),
        *(f"{name}(abs(X[i]) + 0.1)" for name in ("log", "sqrt", "rsqrt")),
        *(f"{name}(0.5 * sin(X[i]))" for name in ("asin", "acos", "atanh", "tan")),
        "acosh(X[i] * X[i] + 1.1)",
        "pow(abs(X[i]) + 0.1, Z[i])",
        "pow(X[i], 2) + pow(X[i], 3) - pow(X[i], 1)",
        "X[i] / (Z[i] * Z[i] + 1) - Z[i] / X[i]",
        "max(X[i], Z[i]) * min(X[i], Z[i], 0.3)",
        "clamp(X[i], -0.5, 0.5) * Z[i]",
        "X[i] > 0 ? X[i] * Z[i] : Z[i] * Z[i] - X[i]",
        "where(X[i] > 0, log(X[i]), 0)",
        "X[i] * floor(Z[i]) + round(X[i]) + where(isnan(X[i]), 0, X[i])",
        "X[i] * f64(i) + f64(i32(Z[i] * 3)) * X[i]",
        "f64(f32(X[i])) * X[8 - i] + (X[i - 2] else 1) * X[i]",
        "log(1 + exp(X[i])) * X[i] / (1 + exp(-Z[i]))",
    ],
)
def test_scalar_functions(text: str) -> None:
    assert difference(of_function(text))[0] < TOLERANCE


@pytest.mark.parametrize(
    "body",
    [
        "Y[i, j] += X[i, k] * X[j, k]",  # one input twice
        "Y[i, j] += X[i + j, k] for i in 0:2, j in 0:2",
        "Y[i, j] = X[i, i] * X[j, i] for j in 0:3",  # a diagonal
        "Y[i, j] = X[(2*i + j) // 3, (i + j) % 3]",
        "Y[i, j] = X[2*i + j // 2 // 2, j % 2] for i in 0:1",
        "Y[i, j] += X[3 - i - k, 1] * X[k, 2] for i in 0:2, k in 0:2, j in 0:1",
        "Y[i, j] = X[min(i, j), max(i, 2*j)] for j in 0:2",
        "Y[i, j] += X[i - k + 1, 2*k] * X[2*i, k] for i in 0:2, k in 0:2, j in 0:2",
        "Y[i, j] *= X[i, k] for j in 0:2",
        "Y[i, j] max= X[i, k] * X[j, k]",
        "Y[i, j] min= tanh(X[k, i]) for j in 0:2",
        "Y[i, j] += where(j <= k and k % 2 == 0, X[i, k] * X[k, j], 0)",
        "Y[i, j] += where(k == j, X[i, k], 0) for j in 0:3",
    ],
)
def test_access_maps(body: str) -> None:
    stated = dict(re.findall(r"(\w) in 0:(\d)", body))
    shape = f"{stated.get('i', 4)}, {stated.get('j', 4)}"
    text = f"kernel k(X: f64[4, 4]) -> (Y: f64[{shape}]) {{ {body} }}"
    assert difference(workload_from_notation(text, {}))[0] < TOLERANCE


def test_several_outputs_and_stages() -> None:
    text = """kernel k(A: f32[3, 4], b: f32[4], I: i32[3]) -> (Y: f32[3], S: f32[3, 4], N: i32[3]) {
        S[i, j] = tanh(A[i, j] + b[j])
        Y[i] += S[i, j] * A[i, j]
        N[i] = I[i] + 1
    }"""
    distance, derived = difference(workload_from_notation(text, {}))
    assert distance < TOLERANCE
    assert [tensor.name for tensor in derived.expression.inputs] == ["A", "b", "dY", "dS"]
    assert derived.expression.outputs == ("dA", "db")


@pytest.mark.parametrize(
    "text",
    [
        "kernel k(W: f32[5, 2], I: i32[3]) -> (Y: f32[3, 2]) { Y[n, d] = W[I[n], d] else 0 }",
        "kernel k(W: f32[5], I: i32[3]) -> (Y: f32[3]) "
        "{ Y[n] += W[clamp(I[n] + k, 0, 4)] for k in 0:2 }",
        "kernel k(W: f32[5], M: bool[5]) -> (Y: f32[3]) { Y[n] = where(M[n + 1], W[n + 2], 0) }",
    ],
)
def test_gathers(text: str) -> None:
    assert difference(workload_from_notation(text, {}))[0] < TOLERANCE


@pytest.mark.parametrize(
    "spec",
    [
        "softmax:M=3,N=4,dtype=float64",
        "rms_norm:M=2,N=3,dtype=float64",
        "matmul:M=2,N=3,K=4,dtype=float64",
        "elementwise:M=3,N=4,act=gelu,dtype=float64",
        "elementwise:M=3,N=4,act=silu,dtype=float64",
        "conv1d:N=1,W=7,CI=2,CO=3,KW=3,stride=2,pad=1,dtype=float64",
        "max_pool2d:N=1,H=4,W=5,C=2,KH=2,KW=2,dtype=float64",
    ],
)
def test_second_derivatives(spec: str) -> None:
    first = derivative_of(parse_spec(spec))
    assert difference(first)[0] < TOLERANCE


def test_third_derivative() -> None:
    workload = of_function("X[i] * X[i] * X[i] * X[i]")
    third = derivative_of(derivative_of(derivative_of(workload), ("X",)), ("X",))
    ones = {tensor.name: np.ones(9) for tensor in third.expression.inputs if tensor.name != "X"}
    (values,) = evaluate(third.expression, {**ones, "X": np.arange(9.0)}).values()
    assert values == pytest.approx(24 * np.arange(9.0))


# --- kinks


def slopes(text: str, **inputs: object) -> dict[str, Any]:
    """The derivatives of a sum of all outputs."""
    derived = of_text(text).expression
    ones = {tensor.name: np.ones(tensor.shape) for tensor in derived.inputs if tensor.name == "dY"}
    given = {
        tensor.name: np.asarray(inputs[tensor.name], np.float64)
        for tensor in derived.inputs
        if tensor.name != "dY"
    }
    return {name: array.tolist() for name, array in evaluate(derived, ones | given).items()}


def test_a_tie_of_two_tensors_is_halved_and_one_with_a_constant_is_flat() -> None:
    of_two = "kernel k(A: f64[3], B: f64[3]) -> (Y: f64[3]) { Y[i] = max(A[i], B[i]) }"
    assert slopes(of_two, A=[1, 2, 3], B=[2, 2, 2]) == {"dA": [0, 0.5, 1], "dB": [1, 0.5, 0]}
    relu6 = "kernel k(A: f64[4]) -> (Y: f64[4]) { Y[i] = min(max(A[i], 0), 6) }"
    assert slopes(relu6, A=[0, 1, 6, 7]) == {"dA": [0, 1, 0, 0]}
    size = "kernel k(A: f64[3]) -> (Y: f64[3]) { Y[i] = abs(A[i]) }"
    assert slopes(size, A=[-2, 0, 2]) == {"dA": [-1, 0, 1]}


@pytest.mark.parametrize("reducer", ["max", "min"])
def test_equal_extremes_share(reducer: str) -> None:
    text = f"kernel k(A: f64[1, 4]) -> (Y: f64[1]) {{ Y[i] {reducer}= A[i, j] }}"
    sign = 1.0 if reducer == "max" else -1.0
    assert slopes(text, A=[[2 * sign, 1 * sign, 2 * sign, 0]]) == {"dA": [[0.5, 0, 0.5, 0]]}


@pytest.mark.parametrize(
    ("factors", "derivative"),
    [([2, 3, 4], [12, 8, 6]), ([2, 0, 4], [0, 8, 0]), ([0, 0, 4], [0, 0, 0])],
)
def test_products_with_zeros(factors: list[int], derivative: list[int]) -> None:
    text = "kernel k(A: f64[1, 3]) -> (Y: f64[1]) { Y[i] *= A[i, j] }"
    assert slopes(text, A=[factors]) == {"dA": [derivative]}


def test_sides_that_are_not_chosen_do_not_matter() -> None:
    root = "kernel k(A: f64[2]) -> (Y: f64[2]) { Y[i] = where(A[i] > 0, sqrt(A[i]), 0) }"
    assert slopes(root, A=[0, 4]) == {"dA": [0, 0.25]}
    power = "kernel k(A: f64[2], B: f64[2]) -> (Y: f64[2]) { Y[i] = pow(A[i], B[i]) }"
    assert slopes(power, A=[0, 2], B=[2, 0])["dA"] == [0, 0]
    assert slopes(power, A=[0, 1], B=[2, 3])["dB"] == [0, 0]


@pytest.mark.parametrize("act", ["sigmoid", "silu", "tanh", "gelu"])
def test_derivatives_of_activations_are_finite_for_large_values(act: str) -> None:
    derived = derivative_of(parse_spec(f"elementwise:M=1,N=4,act={act}")).expression
    large = np.array([[-3000.0, -90.0, 90.0, 3000.0]])
    values = evaluate(derived, {"X": large, "dY": np.ones((1, 4))})["dX"]
    limits = [0, 0, 0, 0] if act in ("sigmoid", "tanh") else [0, 0, 1, 1]
    assert values[0] == pytest.approx(limits, abs=1e-30)


def test_softplus_and_its_slope_are_finite() -> None:
    text = "kernel k(A: f64[3]) -> (Y: f64[3]) { Y[i] = log(1 + exp(A[i])) }"
    assert slopes(text, A=[-1000, 0, 1000]) == {"dA": [0, 0.5, 1]}


# --- what the programs look like


def test_a_product_has_two_products() -> None:
    derived = derivative_of(parse_spec("matmul:M=3,N=4,K=5"))
    assert derived.notation == (
        "kernel matmul_grad(A: f32[3, 5], B: f32[5, 4], dC: f32[3, 4]) "
        "-> (dA: f32[3, 5], dB: f32[5, 4]) {\n"
        "  dA[i, k] += dC[i, j] * B[k, j]\n"
        "  dB[k, j] += dC[i, j] * A[i, k]\n"
        "}\n"
    )


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_convolutions_have_convolutions_without_idle_sums(stride: int) -> None:
    spec = f"conv2d:N=1,H=9,W=9,CI=4,CO=5,KH=3,KW=3,pad=1,stride={stride}"
    expression = derivative_of(parse_spec(spec)).expression
    image, weight = expression.stages
    assert is_plain_product(image.body) and is_plain_product(weight.body)
    # Windows that do not overlap meet each element once.
    window = [3, 3] if stride < 3 else []
    assert sorted(axis.extent for axis in image.reduce_axes) == [*window, 5]


def test_windows_that_do_not_overlap_are_not_summed_over() -> None:
    spec = "avg_pool2d:N=1,H=6,W=6,C=2,KH=2,KW=2,stride=2"
    (stage,) = derivative_of(parse_spec(spec)).expression.stages
    assert stage.reducer is None


def test_what_a_stable_softmax_subtracts_has_no_derivative() -> None:
    for spec in ("softmax:M=3,N=4", "log_softmax:M=3,N=4", "attention:S=3,D=2,B=1,H=1"):
        derived = derivative_of(parse_spec(spec)).expression
        assert not [stage.name for stage in derived.stages if "ties" in stage.name]
    unstable = (
        "kernel k(X: f32[3, 4]) -> (Y: f32[3, 4]) "
        "{ R[i] max= X[i, j]  Y[i, j] = exp(X[i, j] - R[i]) }"
    )
    assert "R_ties" in {stage.name for stage in of_text(unstable).expression.stages}


def test_the_derivative_of_an_exponential_is_read() -> None:
    derived = derivative_of(parse_spec("softmax:M=3,N=4")).notation or ""
    assert derived.count("exp(") == 1


def test_narrow_inputs_have_narrow_derivatives() -> None:
    derived = derivative_of(parse_spec("dense:M=3,N=4,K=5,bias=true,dtype=bfloat16")).expression
    assert {derived.tensor(name).dtype for name in derived.outputs} == {"bfloat16"}
    assert {tensor.dtype for tensor in derived.inputs} == {"bfloat16"}


def test_names_that_exist_get_a_number() -> None:
    text = (
        "kernel k(A: f64[2], dA: f64[2], dY: f64[2]) -> (Y: f64[2]) { Y[i] = A[i] * dA[i] * dY[i] }"
    )
    derived = of_text(text, ("A",)).expression
    assert [tensor.name for tensor in derived.inputs] == ["dA", "dY", "dY_2"]
    assert derived.outputs == ("dA_2",)


def test_chosen_inputs_come_in_the_order_that_was_asked_for() -> None:
    derived = derivative_of(parse_spec("matmul:M=3,N=4,K=5"), ("B", "A")).expression
    assert derived.outputs == ("dB", "dA")
    only = derivative_of(parse_spec("matmul:M=3,N=4,K=5"), ("B",)).expression
    assert [tensor.name for tensor in only.inputs] == ["A", "dC"]


def test_numerics_are_kept_and_the_key_is_that_of_the_text() -> None:
    derived = derivative_of(parse_spec("matmul:M=3,N=4,K=5,numerics=fast"))
    assert derived.numerics == "fast" and derived.spec == "matmul_grad"
    again = workload_from_notation(derived.notation or "", {}, numerics="fast")
    assert again.key == derived.key


def test_reads_stay_inside() -> None:
    derived = derivative_of(parse_spec("conv2d:N=1,H=5,W=5,CI=2,CO=2,KH=3,KW=3,pad=1"))
    padded = [
        read.tensor
        for stage in derived.expression.stages
        for read in reads(stage.body)
        if read.pad is not None
    ]
    assert padded == ["dY", "X"]


# --- what has none


STEPS = """kernel k(A: f32[3], B: f32[3], I: i32[3]) -> (Y: f32[3]) {
    Y[i] = A[i] * floor(B[i]) + where(B[i] > 0, 1.0, 0.0) + f32(I[i])
}"""


@pytest.mark.parametrize(
    ("wrt", "says"),
    [
        (("W",), "k has no input 'W'; its inputs are A, B, I"),
        (("I",), "there is no derivative by 'I': it holds int32.*inputs with one are A"),
        (("B",), "there is no derivative by 'B': no output depends on it by other ways than steps"),
        (("A", "A"), "input 'A' is given twice"),
        ((), "wrt names no input; those with a derivative are A"),
    ],
)
def test_inputs_without_a_derivative(wrt: tuple[str, ...], says: str) -> None:
    with pytest.raises(WorkloadError, match=says) as caught:
        of_text(STEPS, wrt)
    assert caught.value.parameter == "wrt"


def test_a_derivative_that_is_zero_everywhere() -> None:
    text = "kernel k(A: f32[3], B: f32[3]) -> (Y: f32[3]) { Y[i] = B[i] + (A[i + 7] else 2) }"
    assert of_text(text).expression.outputs == ("dB",)
    with pytest.raises(WorkloadError, match="by 'A' is zero everywhere"):
        of_text(text, ("A",))


def test_a_program_beyond_the_limits_says_the_way_out() -> None:
    stages = "\n".join(f"T{n + 1}[i] = tanh(T{n}[i]) * T{n}[i]" for n in range(9))
    text = f"kernel k(A: f32[3]) -> (T9: f32[3]) {{ T0[i] = exp(A[i]) {stages} }}"
    with pytest.raises(WorkloadError, match=r"tensors, the limit is 16.*ask for fewer inputs"):
        of_text(text)


def test_a_derivative_with_too_many_operations_is_refused_before_it_is_written() -> None:
    workload = of_function("*".join(["X[i]", "Z[i]"] * 60))
    with pytest.raises(WorkloadError, match="stage Y by X has more than 8000 operations"):
        derivative_of(workload)


def test_inputs_that_only_choose_are_left_out() -> None:
    assert of_text(STEPS).expression.outputs == ("dA",)
