"""NumPy's routes to catalogue operators, with preallocated outputs.

Operators without a single good call are composed of several, or left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tuner.measure.rivals.route import Route

Array = np.ndarray[Any, np.dtype[Any]]
Params = Mapping[str, Any]


def routes(
    op: str, params: Params, inputs: Mapping[str, Array], shape: tuple[int, ...], threads: int
) -> list[Route]:
    """NumPy's routes to the operator; none for operators that it lacks."""
    if op not in _OPERATORS:
        return []
    limit_threads(threads)
    operands = tuple(inputs.values())
    out = np.empty(shape, _summed(operands[0]) if op in _PRODUCTS else operands[0].dtype)
    call = _OPERATORS[op](params, operands, out)
    return [] if call is None else [Route(name="numpy", call=call, result=lambda: out)]


def limit_threads(threads: int) -> None:
    """Set the threads of NumPy's BLAS.

    A runner starts with one. More need threadpoolctl, which knows the BLAS that NumPy
    brought.
    """
    if threads == 1:
        return
    from threadpoolctl import threadpool_limits  # noqa: PLC0415  # optional, of the extra "compare"

    threadpool_limits(threads)


def _matmul(params: Params, operands: tuple[Array, ...], out: Array) -> Callable[[], object]:
    a = operands[0].swapaxes(-1, -2) if params.get("transpose_a") else operands[0]
    b = operands[1].swapaxes(-1, -2) if params.get("transpose_b") else operands[1]
    return _product(a, b, out)


def _dense(params: Params, operands: tuple[Array, ...], out: Array) -> Callable[[], object] | None:
    x, weights = operands[0], operands[1].T
    finish = _finish(params, operands[2] if len(operands) > 2 else None, out)
    multiply = _product(x, weights, out)
    return None if finish is None else (lambda: (multiply(), finish()))


def _product(a: Array, b: Array, out: Array) -> Callable[[], object]:
    if out.dtype == a.dtype:
        return lambda: np.matmul(a, b, out=out)
    return lambda: np.matmul(a, b, out=out, dtype=out.dtype)


def _summed(x: Array) -> np.dtype[Any]:
    """The dtype of sums: products of 8-bit integers are summed in 32 bits."""
    return np.dtype(np.int32) if x.dtype.itemsize == 1 else x.dtype


def _finish(params: Params, bias: Array | None, out: Array) -> Callable[[], None] | None:
    """Adds the bias and applies the activation in place.

    None for activations that NumPy has no function for.
    """
    act = params.get("act") or "none"
    if act not in ("none", "relu", "tanh"):
        return None

    def finish() -> None:
        if bias is not None:
            np.add(out, bias, out=out)
        if act == "relu":
            np.maximum(out, 0, out=out)
        elif act == "tanh":
            np.tanh(out, out=out)

    return finish


def _reduction(function: Any) -> Callable[[Params, tuple[Array, ...], Array], Callable[[], object]]:
    def build(params: Params, operands: tuple[Array, ...], out: Array) -> Callable[[], object]:
        x, axis = operands[0], params.get("axis", -1)
        return lambda: function(x, axis=axis, out=out)

    return build


def _transpose(params: Params, operands: tuple[Array, ...], out: Array) -> Callable[[], object]:
    transposed = operands[0].T
    return lambda: np.copyto(out, transposed)


def _softmax(params: Params, operands: tuple[Array, ...], out: Array) -> Callable[[], object]:
    x, axis = operands[0], params.get("axis", -1)

    def softmax() -> None:
        np.subtract(x, x.max(axis=axis, keepdims=True), out=out)
        np.exp(out, out=out)
        np.divide(out, out.sum(axis=axis, keepdims=True), out=out)

    return softmax


def _layer_norm(params: Params, operands: tuple[Array, ...], out: Array) -> Callable[[], object]:
    x, gamma, beta = operands
    eps = params.get("eps", 1e-5)

    def layer_norm() -> None:
        np.subtract(x, x.mean(axis=-1, keepdims=True), out=out)
        scale = 1 / np.sqrt((out * out).mean(axis=-1, keepdims=True) + eps)
        np.multiply(out, scale, out=out)
        np.multiply(out, gamma, out=out)
        np.add(out, beta, out=out)

    return layer_norm


def _bias_act(
    params: Params, operands: tuple[Array, ...], out: Array
) -> Callable[[], object] | None:
    x, bias = operands
    finish = _finish(params, None, out)
    return None if finish is None else (lambda: (np.add(x, bias, out=out), finish()))


def _elementwise(
    params: Params, operands: tuple[Array, ...], out: Array
) -> Callable[[], object] | None:
    x = operands[0]
    functions: Mapping[str, Callable[[], object]] = {
        "relu": lambda: np.maximum(x, 0, out=out),
        "tanh": lambda: np.tanh(x, out=out),
        "exp": lambda: np.exp(x, out=out),
        "sqrt": lambda: np.sqrt(x, out=out),
        "abs": lambda: np.abs(x, out=out),
        "none": lambda: np.copyto(out, x),
    }
    return functions.get(params.get("act") or "none")


_PRODUCTS = frozenset({"matmul", "batch_matmul", "dense"})
_OPERATORS: Mapping[
    str, Callable[[Params, tuple[Array, ...], Array], Callable[[], object] | None]
] = {
    "matmul": _matmul,
    "batch_matmul": _matmul,
    "dense": _dense,
    "reduce_sum": _reduction(np.sum),
    "reduce_max": _reduction(np.max),
    "reduce_mean": _reduction(np.mean),
    "transpose": _transpose,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "bias_act": _bias_act,
    "elementwise": _elementwise,
}
