"""Derivatives equal those of PyTorch's autograd: of every operator, and of PyTorch's own
functions at their kinks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.support.derivatives import exact_inputs, has_derivative  # noqa: E402  # after the check for PyTorch
from tests.support.operator_samples import combinations  # noqa: E402
from tests.support.torch_expressions import computed  # noqa: E402
from tuner.errors import WorkloadError  # noqa: E402
from tuner.workload.catalogue import CATALOGUE  # noqa: E402
from tuner.workload.derivative.workload import derivative_of  # noqa: E402
from tuner.workload.dtypes import FLOATS  # noqa: E402
from tuner.workload.expression import Expression  # noqa: E402
from tuner.workload.operator import Operator  # noqa: E402
from tuner.workload.reference import evaluate  # noqa: E402
from tuner.workload.spec import parse_spec, workload_from_params  # noqa: E402
from tuner.workload.workload import Workload  # noqa: E402

functional = torch.nn.functional
Arrays = dict[str, Any]


def autograd(function: Callable[..., Any], inputs: Arrays, weight: Any) -> Arrays:
    """The derivatives by all inputs of floats of a loss that has the weight as derivative."""
    leaves = {
        name: torch.tensor(array, requires_grad=array.dtype.kind == "f")
        for name, array in inputs.items()
    }
    function(*leaves.values()).backward(torch.tensor(weight))
    return {f"d{name}": leaf.grad.numpy() for name, leaf in leaves.items() if leaf.requires_grad}


def compare(workload: Workload, function: Callable[..., Any], inputs: Arrays) -> None:
    expression = workload.expression
    (output,) = expression.outputs
    weight = np.random.default_rng(0).standard_normal(expression.tensor(output).shape)
    arrays = {**inputs, f"d{output}": weight}
    right = autograd(function, inputs, weight)
    for derived in programs(workload):
        given = {tensor.name: arrays[tensor.name] for tensor in derived.inputs}
        for name, values in evaluate(derived, given).items():
            np.testing.assert_allclose(values, right[name], rtol=1e-9, atol=1e-11, err_msg=name)


def programs(workload: Workload) -> list[Expression]:
    """The derivative by all inputs, in one program if that holds it."""
    try:
        return [derivative_of(workload).expression]
    except WorkloadError as error:
        if "ask for fewer inputs at a time" not in str(error):
            raise
    floats = (tensor for tensor in workload.expression.inputs if tensor.dtype in FLOATS)
    return [derivative_of(workload, (tensor.name,)).expression for tensor in floats]


@pytest.mark.parametrize("operator", CATALOGUE, ids=lambda operator: operator.name)
def test_operators(operator: Operator) -> None:
    workloads = (workload_from_params(operator.name, p) for p in combinations(operator))
    for workload in [each for each in workloads if has_derivative(each)][::12]:
        function = partial(_in_torch, workload.expression)
        compare(workload, function, exact_inputs(workload.expression, 2))


def _in_torch(expression: Expression, *tensors: Any) -> Any:
    names = (tensor.name for tensor in expression.inputs)
    (output,) = computed(expression, dict(zip(names, tensors, strict=True))).values()
    return output


CONV = "N=2,H=7,W=6,CI=4,CO=6,KH=3,KW=2,layout=NCHW,dtype=float64"
FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"conv2d:{CONV},stride=2,pad=1,dilation=2,groups=2,bias=true": lambda X, W, bias: (
        functional.conv2d(X, W, bias, stride=2, padding=1, dilation=2, groups=2)
    ),
    "avg_pool2d:N=1,H=7,W=7,C=3,KH=3,KW=3,stride=2,pad=1,layout=NCHW,dtype=float64": lambda X: (
        functional.avg_pool2d(X, 3, stride=2, padding=1)
    ),
    "max_pool2d:N=1,H=7,W=7,C=3,KH=3,KW=3,stride=2,pad=1,layout=NCHW,dtype=float64": lambda X: (
        functional.max_pool2d(X, 3, stride=2, padding=1)
    ),
    "layer_norm:M=4,N=6,dtype=float64": lambda X, gamma, beta: functional.layer_norm(
        X, (6,), gamma, beta
    ),
    "log_softmax:M=4,N=6,dtype=float64": lambda X: functional.log_softmax(X, 1),
    "attention:B=1,H=2,S=5,D=3,causal=true,dtype=float64": lambda Q, K, V: (
        functional.scaled_dot_product_attention(Q, K, V, is_causal=True)
    ),
    "elementwise:M=4,N=6,act=gelu,dtype=float64": functional.gelu,
    "elementwise:M=4,N=6,act=silu,dtype=float64": functional.silu,
    "embedding:N=6,V=5,D=3,dtype=float64": functional.embedding,
}


@pytest.mark.parametrize("spec", FUNCTIONS)
def test_functions(spec: str) -> None:
    workload = parse_spec(spec)
    inputs = exact_inputs(workload.expression, 3)
    inputs |= {name: a.astype(np.int64) for name, a in inputs.items() if a.dtype.kind == "i"}
    compare(workload, FUNCTIONS[spec], inputs)


KINKS: dict[str, Callable[..., Any]] = {
    "elementwise:M=2,N=4,act=relu,dtype=float64": functional.relu,
    "elementwise:M=2,N=4,act=relu6,dtype=float64": functional.relu6,
    "elementwise:M=2,N=4,act=abs,dtype=float64": torch.abs,
    "reduce_max:M=2,N=4,dtype=float64": lambda X: torch.amax(X, 1),
}


@pytest.mark.parametrize("spec", KINKS)
def test_kinks(spec: str) -> None:
    values = np.array([[0.0, 6.0, 6.0, -1.0], [3.0, 0.0, 3.0, 3.0]])
    compare(parse_spec(spec), KINKS[spec], {"X": values})
