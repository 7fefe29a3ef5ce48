"""Random graphs of models, built as the readers of files do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from tuner.models.graph import Array, Graph
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.movement import reshape, transpose
from tuner.models.operators.scalars import constant, unary, where
from tuner.models.operators.scans import scan
from tuner.models.operators.values import Value

_SHAPE = (4, 6)
_OPERATORS = ("add", "bend", "reshaped", "transposed", "summed", "scaled", "scanned")


@st.composite
def graphs(draw: st.DrawFn, operators: Sequence[str] = _OPERATORS) -> Graph:
    """Values of one shape, each computed from earlier ones; equal ones are frequent."""
    builder = GraphBuilder()
    values = [builder.input(_SHAPE, "float32") for _ in range(draw(st.integers(1, 2)))]
    count = len(values)
    for _ in range(draw(st.integers(1, 10))):
        operator = draw(st.sampled_from(operators))
        left, right = (values[draw(st.integers(0, len(values) - 1))] for _ in range(2))
        values.append(_applied(operator, left, right))
    outputs = [values[draw(st.integers(count, len(values) - 1))] for _ in range(2)]
    labels = [f"x{number}" for number in range(count)] + ["y", "z"]
    return builder.graph(outputs, labels)


def inputs_of(graph: Graph) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(tensor.shape).astype(np.float32) for tensor in graph.inputs]


def _applied(operator: str, left: Value, right: Value) -> Value:
    match operator:
        case "add":
            return elementwise("add", lambda a, b: a + b, left, right)
        case "bend":
            return elementwise("bend", lambda a: where(a < 0.0, a * 0.5, unary("tanh", a)), left)
        case "reshaped":  # a stored alias at another shape, then back
            flat = elementwise("negate", lambda a: -a, reshape(left, [24]))
            return reshape(flat, _SHAPE)
        case "transposed":
            return transpose(transpose(left, [1, 0]).materialized(), [1, 0])
        case "summed":
            total = left.builder.reduce("sum", "sum", [4], [6], lambda i, r: left[i, r])
            return elementwise("spread", lambda a, b: a + b, reshape(total, [4, 1]), right)
        case "scaled":  # by a constant that is large, and new each time
            table = left.builder.constant(np.full((1024, 6), 0.5, np.float32))
            return left.builder.compute("scaled", _SHAPE, lambda i, j: left[i, j] * table[i, j])
        case _:
            return _scanned(left, right)


def _scanned(left: Value, right: Value) -> Value:
    """Sums along the first dimension, and a sequence that nothing may read."""
    builder = left.builder
    begin = builder.constant(np.zeros(6, np.float32))

    def step(x: Value, y: Value, state: Value) -> tuple[list[Value], list[Value]]:
        after = elementwise("next", lambda a, s: a + s * 0.5, x, state)
        other = elementwise("other", lambda a, s: a * constant(2.0, "float32") + s, y, state)
        return [after], [after, other]

    (last,), (every, others) = scan(builder, "running", 4, [left, right], [begin], step)
    chosen = every if left.tensor < right.tensor else others
    return elementwise("ends", lambda a, b: a + b, chosen, reshape(last, [1, 6]))
