"""Derivatives of exported functions that are sums of products: einsums of the same operands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tuner.workload.expression import Binary, Cast, Expression, Read, Scalar, Var

_FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})


@dataclass(frozen=True)
class Product:
    """A sum of products as an einsum: a number for each dimension of operands and output."""

    inputs: tuple[tuple[int, ...], ...]  # in the order of the expression's inputs
    output: tuple[int, ...]


def product_of(expression: Expression | None) -> Product | None:
    """What an expression multiplies and sums; None for one that does anything else.

    The derivative by each operand must be an einsum of the output's and the other operands:
    no operand has an iterator twice, or one that nothing else has.
    """
    if expression is None or len(expression.stages) != 1:
        return None
    (stage,) = expression.stages
    numbers = {axis.name: number for number, axis in enumerate((*stage.axes, *stage.reduce_axes))}
    extents = stage.extents
    read: dict[str, tuple[int, ...]] = {}
    for factor in _factors(stage.body):
        if not isinstance(factor, Read) or factor.tensor in read or factor.pad is not None:
            return None
        names = [index.name for index in factor.indices if isinstance(index, Var)]
        shape = expression.tensor(factor.tensor).shape
        if len(names) < len(shape) or tuple(extents[name] for name in names) != shape:
            return None
        read[factor.tensor] = tuple(numbers[name] for name in names)
    output = tuple(numbers[axis.name] for axis in stage.axes)
    dtypes = {tensor.dtype for tensor in (*expression.inputs, stage.tensor)}
    if (
        stage.reducer not in (None, "sum")
        or len(dtypes) > 1
        or not dtypes <= _FLOATS
        or set(read) != {tensor.name for tensor in expression.inputs}
    ):
        return None
    inputs = tuple(read[tensor.name] for tensor in expression.inputs)
    for place, labels in enumerate(inputs):
        others = set(output).union(*inputs[:place], *inputs[place + 1 :])
        if len(set(labels)) < len(labels) or not set(labels) <= others:
            return None
    if not set(output) <= {label for labels in inputs for label in labels}:
        return None
    return Product(inputs, output)


def _factors(node: Scalar) -> Iterator[Scalar]:
    if isinstance(node, Cast) and node.dtype in _FLOATS:
        yield from _factors(node.arg)
    elif isinstance(node, Binary) and node.op == "mul":
        yield from _factors(node.lhs)
        yield from _factors(node.rhs)
    else:
        yield node
