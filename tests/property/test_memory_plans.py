"""Memory plans of random graphs, run in the arena that they lay out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.random_graphs import graphs, inputs_of
from tuner.models.errors import ModelRefused
from tuner.models.graph import Array, Graph, check_graph
from tuner.models.library.memory import MemoryPlan, plan_memory
from tuner.models.passes.equal_nodes import without_equal
from tuner.models.passes.fusion import fuse
from tuner.models.reference.evaluation import evaluate_graph
from tuner.workload.arrays import numpy_dtype
from tuner.workload.expression import Expression
from tuner.workload.reference import evaluate

KINDS = ("add", "bend", "reshaped", "transposed", "summed", "scaled")


@settings(max_examples=150)
@given(graphs(KINDS), st.booleans())
def test_a_planned_graph_computes_what_the_graph_does(graph: Graph, simple: bool) -> None:
    """Also where results are written over operands as soon as the plan allows it."""
    graph = fuse(without_equal(graph)) if simple else graph
    inputs = inputs_of(graph)
    right = evaluate_graph(graph, inputs)
    apart, shared = plan_memory(graph), plan_memory(graph, every_operand(graph))
    assert shared.arena_bytes <= apart.arena_bytes
    for plan in (apart, shared):
        outputs = planned(graph, plan, inputs)
        for name, got in zip(graph.outputs, outputs, strict=True):
            np.testing.assert_array_equal(got, right[name])


def every_operand(graph: Graph) -> dict[str, tuple[str, ...]]:
    """As if each kernel read all operands before it wrote anything."""
    return {
        node.outputs[0]: tuple(graph.root(tensor.name) for tensor in node.inputs)
        for node in graph.expressions
    }


@settings(max_examples=150)
@given(graphs(KINDS), st.permutations(["x0", "x1"]), st.booleans())
def test_outputs_lie_over_the_inputs_that_they_replace(
    graph: Graph, old: list[str], every: bool
) -> None:
    """Or elsewhere, as the caller likes."""
    count = len(graph.inputs)
    pairs = zip(("y", "z") if every else ("z",), old, strict=False)
    graph = replace(
        graph, replacing={new: name for new, name in pairs if name in graph.labels[:count]}
    )
    assume(graph.replacing)
    try:
        check_graph(graph)
    except ModelRefused:
        assume(False)
    right = evaluate_graph(graph, inputs_of(graph))
    for plan in (plan_memory(graph), plan_memory(graph, every_operand(graph))):
        for shared in (False, True):
            outputs = planned(graph, plan, inputs_of(graph), shared=shared)
            for name, got in zip(graph.outputs, outputs, strict=True):
                np.testing.assert_array_equal(got, right[name])


def planned(
    graph: Graph, plan: MemoryPlan, inputs: list[Array], *, shared: bool = False
) -> list[Array]:
    """The outputs of a call that keeps every tensor where the plan has it. With `shared` they
    have the memory of the inputs that they replace."""
    arena = np.zeros(plan.arena_bytes, np.uint8)
    outputs = [
        np.zeros(graph.tensor(name).shape, numpy_dtype(graph.tensor(name).dtype))
        for name in graph.outputs
    ]
    for output, number in graph.replaced.items() if shared else ():
        outputs[output] = inputs[number].reshape(outputs[output].shape)

    def held(name: str) -> Array:
        tensor, place = graph.tensor(name), plan.places[graph.root(name)]
        match place.kind:
            case "input":
                array = inputs[place.position]
            case "output":
                array = outputs[place.position]
            case "constant":
                array = graph.constants[graph.root(name)]
            case _:
                part = arena[place.position : place.position + tensor.nbytes]
                array = part.view(numpy_dtype(tensor.dtype))
        return array.reshape(tensor.shape)

    for node in graph.nodes:
        assert isinstance(node, Expression)
        results = evaluate(node, {tensor.name: held(tensor.name) for tensor in node.inputs})
        for name in node.outputs:
            held(name)[...] = results[name].astype(numpy_dtype(node.tensor(name).dtype))
    for number, name in plan.copies:
        outputs[number].reshape(-1)[...] = held(name).reshape(-1)
    return outputs
