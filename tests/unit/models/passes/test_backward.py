"""Derivatives of models: graphs that equal central differences of the models' own."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.support.random_graphs import graphs, inputs_of
from tuner.models.errors import ModelRefused
from tuner.models.graph import Array, Graph, without_unused
from tuner.models.nodes import Scan
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.scalars import unary
from tuner.models.passes.backward import backward
from tuner.models.reference.evaluation import evaluate_graph
from tuner.workload.notation import parse

SMOOTH = ("add", "bend", "reshaped", "transposed", "summed", "scaled")
STEP = 1e-3
COMMON = settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def outputs_of(graph: Graph, inputs: list[Array]) -> list[Array]:
    tensors = evaluate_graph(graph, inputs)
    return [tensors[name].astype(np.float64) for name in graph.outputs]


def compare(graph: Graph, inputs: list[Array], made: Graph) -> None:
    """Each derivative against the slope of a loss along a random direction."""
    rng = np.random.default_rng(1)
    weights = [
        rng.standard_normal(graph.tensor(name).shape).astype(np.float32) for name in graph.outputs
    ]
    labels = made.labels[len(made.inputs) :]
    for label, gradient in zip(labels, outputs_of(made, [*inputs, *weights]), strict=True):
        place = graph.labels.index(label.removeprefix("d"))
        direction = rng.standard_normal(inputs[place].shape)

        def loss(distance: float, place: int = place, direction: Any = direction) -> float:
            moved = list(inputs)
            moved[place] = (inputs[place] + distance * direction).astype(np.float32)
            values = outputs_of(graph, moved)
            return sum(float((w * v).sum()) for w, v in zip(weights, values, strict=True))

        slope = (loss(STEP) - loss(-STEP)) / (2 * STEP)
        size = float(np.abs(gradient * direction).sum())
        assert abs(slope - float((gradient * direction).sum())) < 3e-3 * max(size, 1e-2), label


@COMMON
@given(graphs(SMOOTH))
def test_derivatives_of_random_graphs_equal_central_differences(graph: Graph) -> None:
    compare(graph, inputs_of(graph), backward(graph))


@COMMON
@given(graphs(("scanned", "add", "transposed")))
def test_loops_on_the_way_are_refused(graph: Graph) -> None:
    looped = any(isinstance(node, Scan) for node in without_unused(graph).nodes)
    with pytest.raises(ModelRefused, match="a loop or a branch") if looped else nullcontext():
        compare(graph, inputs_of(graph), backward(graph))


def chains(length: int, names: str) -> Graph:
    """One node of chains of functions, as long, from inputs of these names."""
    stages = [
        f"{name}{n + 1}[i] = tanh({before}[i]) * {before}[i]"
        for name in names
        for n, before in enumerate([name, *(f"{name}{n + 1}" for n in range(length - 1))])
    ]
    inputs = ", ".join(f"{name}: f32[3]" for name in names)
    result = " + ".join(f"{name}{length}[i]" for name in names)
    text = f"kernel k({inputs}) -> (Y: f32[3]) {{ {' '.join(stages)} Y[i] = {result} }}"
    node = parse(text, {})
    return Graph(
        inputs=node.inputs, constants={}, nodes=(node,), outputs=("Y",), labels=(*names, "y")
    )


def test_what_is_too_much_at_once_is_differentiated_input_by_input() -> None:
    graph = chains(4, "AB")
    made = backward(graph)
    assert made.labels == ("A", "B", "dy", "dA", "dB")
    compare(graph, inputs_of(graph), made)
    with pytest.raises(ModelRefused, match=r"the derivative of k is no program: .*limit is 16"):
        backward(chains(9, "A"))


def dense(builder: GraphBuilder) -> Graph:
    """Two layers, their weights inputs of the model."""
    x, first, second = (builder.input(shape, "float32") for shape in ((3, 4), (4, 5), (5, 2)))
    hidden = builder.reduce("matmul", "sum", (3, 5), (4,), lambda i, j, r: x[i, r] * first[r, j])
    bent = elementwise("tanh", lambda a: unary("tanh", a), hidden)
    result = builder.reduce(
        "matmul", "sum", (3, 2), (5,), lambda i, j, r: bent[i, r] * second[r, j]
    )
    return builder.graph([result], ["x", "w1", "w2", "y"])


def test_a_model_is_trained_by_its_inputs() -> None:
    graph = dense(GraphBuilder())
    made = backward(graph)
    assert made.labels == ("x", "w1", "w2", "dy", "dx", "dw1", "dw2")
    compare(graph, inputs_of(graph), made)
    # The slope of tanh is computed from its value, and nothing twice.
    functions = [node for node in made.expressions if "tanh" in str(node.stages)]
    assert len(functions) == 1


def test_inputs_are_chosen_by_their_labels() -> None:
    graph = dense(GraphBuilder())
    made = backward(graph, ["w2"])
    assert made.labels == ("x", "w1", "w2", "dy", "dw2")
    compare(graph, inputs_of(graph), made)


def test_a_derivative_is_differentiated_again() -> None:
    graph = backward(dense(GraphBuilder()), ["w1"])
    made = backward(graph)
    assert made.labels == ("x", "w1", "w2", "dy", "ddw1", "dx", "dw1", "dw2", "ddy")
    compare(graph, inputs_of(graph), made)


def test_a_number_has_a_derivative_without_dimensions() -> None:
    builder = GraphBuilder()
    x, scale = builder.input((3,), "float32"), builder.input((), "float32")
    scaled = elementwise("scaled", lambda a, s: a * s * s, x, scale)
    graph = builder.graph([scaled, scale], ["x", "s", "y", "again"])
    made = backward(graph)
    assert [made.tensor(name).shape for name in made.outputs] == [(3,), ()]
    compare(graph, inputs_of(graph), made)


def test_labels_stay_distinct() -> None:
    node = parse("kernel k(A: f32[3], B: f32[3]) -> (Y: f32[3]) { Y[i] = A[i] * B[i] }", {})
    graph = Graph(
        inputs=node.inputs, constants={}, nodes=(node,), outputs=("Y",), labels=("a", "b", "y")
    )
    for _ in range(4):
        graph = backward(graph)
        assert len({*graph.labels}) == len(graph.labels), graph.labels


@pytest.mark.parametrize(
    ("wrt", "says"),
    [
        ([], "wrt names no input"),
        (["w3"], "no input 'w3'.*x, w1, w2"),
        (["n"], "holds int64"),
        (["s"], "there is no derivative by 's': no output depends on it"),
    ],
)
def test_inputs_without_a_derivative(wrt: list[str], says: str) -> None:
    builder = GraphBuilder()
    x, step = builder.input((3,), "float32"), builder.input((3,), "float32")
    number = builder.input((3,), "int64")
    result = elementwise("sum", lambda a, b: a + unary("floor", b), x, step)
    labels = ["x", "s", "n", "y"] if wrt != ["w3"] else ["x", "w1", "w2", "y"]
    graph = builder.graph([result], labels)
    assert number.shape == (3,)
    with pytest.raises(ModelRefused, match=says):
        backward(graph, wrt)
