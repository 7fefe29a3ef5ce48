"""Calls of NumPy as graphs of expressions.

Universal functions compute in the dtype that NumPy itself resolves for the arguments.
A number of Python's becomes an input, but for a small integer: exponents mean something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tuner.errors import WorkloadError
from tuner.models.errors import ModelRefused
from tuner.models.graph import Graph, check_graph
from tuner.models.operators import contraction, reduction
from tuner.models.operators import elementwise as maps
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.scalars import Elem, maximum, minimum, unary, where
from tuner.models.operators.values import Value
from tuner.trace.binding import Binding, Result, dense_strides
from tuner.trace.layout import dtype_named, stored_input
from tuner.trace.record import Argument, TracedCall
from tuner.workload.dtypes import DType
from tuner.workload.expression import Reducer

_SMALL = 8  # greatest integers that are constants, as the recorder distinguishes them
_FAULTS = (ValueError, TypeError, IndexError, KeyError, ArithmeticError, WorkloadError)
# Positional arguments that no result is written to; 3 where it is not said.
_PLACES = {"numpy.dot": 2, "numpy.einsum": 64}
_IGNORED = ("out", "signature", "optimize")  # where results go, and how NumPy computes them


@dataclass(frozen=True, kw_only=True)
class _Call:
    """A call's arguments: values in their order, and those given by name."""

    operator: str
    builder: GraphBuilder
    positional: list[Argument]
    named: Mapping[str, Argument] = field(default_factory=dict)
    sources: list[int] = field(default_factory=list)  # the argument of each input so far

    def value(self, number: int, dtype: DType) -> Value:
        """A positional argument as a value of this dtype."""
        argument = self.positional[number]
        if "shape" in argument:
            return maps.cast(self.tensor(number), dtype)
        given = argument.get("value")
        if not isinstance(given, (bool, int, float)):
            raise ModelRefused(f"{self.operator} has an argument that is no array or number")
        if isinstance(given, int) and abs(given) <= _SMALL:
            return self.builder.constant(given, dtype)
        self.sources.append(number)
        return self.builder.input([], dtype)

    def tensor(self, number: int) -> Value:
        """A positional argument that is an array."""
        self.sources.append(number)
        return stored_input(self.builder, self.positional[number])

    def option(self, name: str, number: int, default: Any = None) -> Any:
        """A plain argument by its name, or by its place where it has one."""
        argument = self.named.get(name)
        if argument is None and number < len(self.positional):
            argument = self.positional[number]
        if argument is None:
            return default
        if "value" not in argument:
            raise ModelRefused(f"{self.operator} has a {name} that is not a plain value")
        return argument["value"]


_Convert = Callable[[_Call], Value]


def bound_numpy(call: TracedCall) -> Binding:
    """The graph of a call, before fusion, and its arguments. Raises ModelRefused for one
    without expression."""
    if call.operator not in TABLE:
        raise ModelRefused(f"{call.operator} has no expression yet")
    convert, options = TABLE[call.operator]
    named = {argument["name"]: argument for argument in call.arguments if "name" in argument}
    for name in named:
        if name not in (*options, *_IGNORED):
            raise ModelRefused(f"{call.operator} with {name}= has no expression yet")
    builder = GraphBuilder()
    positional = [argument for argument in call.arguments if "name" not in argument]
    described = _Call(operator=call.operator, builder=builder, positional=positional, named=named)
    try:
        result = convert(described)
        labels = [f"in{number}" for number in range(len(builder.graph([], []).inputs))]
        graph = builder.graph([result], [*labels, "out0"])
        check_graph(graph)
    except _FAULTS as error:
        raise ModelRefused(f"{call.operator} has no expression: {error}") from error
    return Binding(
        graph=graph, inputs=tuple(described.sources), result=_result(call, graph, result)
    )


def _result(call: TracedCall, graph: Graph, value: Value) -> Result | None:
    """The array that a call makes; None where it writes into one that it is given, or gives
    one that it was given."""
    function = getattr(np, call.operator.removeprefix("numpy."))
    places = function.nin if isinstance(function, np.ufunc) else _PLACES.get(call.operator, 3)
    positional = [argument for argument in call.arguments if "name" not in argument]
    writes = any(argument.get("name") == "out" for argument in call.arguments)
    inputs = {tensor.name for tensor in graph.inputs}
    if writes or len(positional) > places or graph.root(graph.outputs[0]) in inputs:
        return None
    shape = tuple(value.shape)
    return Result(shape=shape, strides=dense_strides(shape), dtype=value.dtype)


def _dtypes(call: _Call, ufunc: np.ufunc) -> list[DType]:
    """The dtypes in which a universal function computes: of its operands, then its results."""
    given: list[Any] = []
    for argument in call.positional[: ufunc.nin]:
        if "shape" in argument:
            given.append(np.dtype(dtype_named(argument["dtype"])))
        elif isinstance(argument.get("value"), (bool, int, float)):
            given.append(type(argument["value"]))
        else:
            raise ModelRefused(f"{call.operator} has an argument that is no array or number")
    resolved = ufunc.resolve_dtypes((*given, *[None] * ufunc.nout))
    return [dtype_named(dtype.name) for dtype in resolved]


def _universal(ufunc: np.ufunc, function: Callable[..., Elem]) -> tuple[_Convert, tuple[str, ...]]:
    def convert(call: _Call) -> Value:
        *operands, result = _dtypes(call, ufunc)
        values = [call.value(number, dtype) for number, dtype in enumerate(operands)]
        return elementwise(ufunc.__name__, function, *values, dtype=result)

    return convert, ()


def _matmul(call: _Call) -> Value:
    left, right, result = _dtypes(call, np.matmul)
    return contraction.matmul(call.value(0, left), call.value(1, right), result)


def _dot(call: _Call) -> Value:
    if any(len(argument.get("shape", [0] * 3)) > 2 for argument in call.positional[:2]):
        raise ModelRefused("numpy.dot of more than two dimensions has no expression yet")
    return _matmul(call)


def _einsum(call: _Call) -> Value:
    equation = call.option("subscripts", 0)
    values = [call.tensor(number) for number in range(1, len(call.positional))]
    dtype = dtype_named(np.result_type(*(value.dtype for value in values)).name)
    return contraction.einsum(equation, *(maps.cast(value, dtype) for value in values))


def _reduced(reducer: Reducer) -> tuple[_Convert, tuple[str, ...]]:
    def convert(call: _Call) -> Value:
        x, axes, keep = _rows(call)
        if reducer in ("sum", "prod") and np.dtype(x.dtype).kind in "biu":
            raise ModelRefused(f"{call.operator} of integers is computed in other integers")
        return reduction.reduce(reducer, reducer, x, axes, keep=keep)

    return convert, ("axis", "keepdims")


def _mean(call: _Call) -> Value:
    x, axes, keep = _rows(call)
    if np.dtype(x.dtype).kind != "f":
        x = maps.cast(x, "float64")
    return reduction.mean(x, axes, keep=keep)


def _rows(call: _Call) -> tuple[Value, tuple[int, ...], bool]:
    """What is reduced, over which axes, and whether they stay."""
    x = call.tensor(0)
    axis = call.option("axis", 1)
    axes = None if axis is None else [axis] if isinstance(axis, int) else axis
    if len(call.positional) > 2:
        raise ModelRefused(f"{call.operator} with a dtype has no expression yet")
    return x, reduction.normalized(axes, x.rank), bool(call.option("keepdims", 9, False))


def _where(call: _Call) -> Value:
    if len(call.positional) != 3:
        raise ModelRefused("numpy.where without both values has no expression")
    kinds = [argument for argument in call.positional[1:] if "shape" in argument]
    dtype = dtype_named(np.result_type(*(argument["dtype"] for argument in kinds)).name)
    condition = call.value(0, "bool")
    return elementwise("where", where, condition, call.value(1, dtype), call.value(2, dtype),
                       dtype=dtype)  # fmt: skip


_UNIVERSAL: Mapping[str, Callable[..., Elem]] = {
    "absolute": partial(unary, "abs"),
    "arctan": partial(unary, "atan"),
    "ceil": partial(unary, "ceil"),
    "cos": partial(unary, "cos"),
    "cosh": partial(unary, "cosh"),
    "exp": partial(unary, "exp"),
    "expm1": maps.expm1,
    "floor": partial(unary, "floor"),
    "log": partial(unary, "log"),
    "log1p": maps.log1p,
    "logical_not": lambda a: a.equals(0),
    "negative": lambda a: -a,
    "reciprocal": maps.reciprocal,
    "rint": partial(unary, "round"),
    "sin": partial(unary, "sin"),
    "sinh": partial(unary, "sinh"),
    "sqrt": partial(unary, "sqrt"),
    "square": lambda a: a * a,
    "tan": partial(unary, "tan"),
    "tanh": partial(unary, "tanh"),
    "add": lambda a, b: a + b,
    "arctan2": maps.atan2,
    "divide": maps.divide,
    "equal": lambda a, b: a.equals(b),
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "maximum": maximum,
    "minimum": minimum,
    "multiply": lambda a, b: a * b,
    "not_equal": lambda a, b: a.differs(b),
    "power": maps.power,
    "subtract": lambda a, b: a - b,
}

# What converts a call, and the options that it takes by name.
TABLE: Mapping[str, tuple[_Convert, tuple[str, ...]]] = {
    **{
        f"numpy.{name}": _universal(getattr(np, name), function)
        for name, function in _UNIVERSAL.items()
    },
    "numpy.matmul": (_matmul, ()),
    "numpy.dot": (_dot, ()),
    "numpy.einsum": (_einsum, ()),
    "numpy.sum": _reduced("sum"),
    "numpy.prod": _reduced("prod"),
    "numpy.max": _reduced("max"),
    "numpy.min": _reduced("min"),
    "numpy.mean": (_mean, ("axis", "keepdims")),
    "numpy.where": (_where, ()),
}
