"""What is written down of a model: its steps, what they read, its arguments' names."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support import onnx_networks as nets
from tuner.models.description import (
    KernelTime,
    Measurement,
    described,
    from_json,
    measurement_from,
    to_json,
)
from tuner.models.graph import Graph
from tuner.models.library.memory import plan_memory
from tuner.models.reading import read_graph
from tuner.models.workloads import workloads_of


def graph_of(model: Any) -> Graph:
    return read_graph(nets.serialized(model), {})


@pytest.mark.parametrize(
    "model",
    [nets.perceptron(rows=2, sizes=(16, 8)), nets.tagger()],
    ids=["perceptron", "recurrent"],
)
def test_a_description_has_the_graphs_calls_and_survives_its_json(model: Any) -> None:
    graph = graph_of(model)
    made = described(graph)
    assert from_json(to_json(made)) == made
    calls: dict[str, int] = {}
    for step in made.steps:
        calls[step.kernel] = calls.get(step.kernel, 0) + step.calls
        assert set(step.constants) <= {tensor.name for tensor in step.reads}
    assert calls == {part.workload.key: part.calls for part in workloads_of(graph)}
    assert made.constants_bytes == graph.nbytes
    assert made.activations_bytes == plan_memory(graph).arena_bytes


def test_every_step_leads_from_an_input_to_an_output() -> None:
    """In a recurrent model, too, whose steps read slices of what others write."""
    made = described(graph_of(nets.tagger()))
    unread = set(range(len(made.steps)))
    for position, step in enumerate(made.steps):
        assert all(before < position for before in step.after)
        unread -= {*step.after, *((position,) if step.outputs else ())}
    assert unread == set()
    assert {place for step in made.steps for place in step.inputs} == {*range(len(made.inputs))}
    assert {place for step in made.steps for place in step.outputs} == {*range(len(made.outputs))}


def test_arguments_have_the_files_names_and_differ() -> None:
    model = nets.perceptron(rows=2, sizes=(16, 8))
    graph = graph_of(model)
    assert [tensor.name for tensor in described(graph).inputs] == [
        value.name for value in model.graph.input
    ]
    twice = replace(graph, outputs=graph.outputs * 2, labels=(*graph.labels[:1], "y:0", "y:0"))
    assert [tensor.name for tensor in described(twice).outputs] == ["y:0_0", "y:0_1"]


def test_an_input_that_is_read_behind_a_view_is_named() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [24])
    flat = onnx.numpy_helper.from_array(np.array([24]), "flat")
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["r"]),
        helper.make_node("Exp", ["r"], ["y"]),
    ]
    made = described(graph_of(helper.make_model(helper.make_graph(nodes, "g", [x], [y], [flat]))))
    assert [(step.inputs, step.outputs) for step in made.steps] == [((0,), (0,))]


def test_figures_survive_their_json() -> None:
    figures = Measurement(
        median_s=2.0,
        ci95_s=(1.0, 3.0),
        max_rel_error=1e-6,
        kernels={"k": KernelTime(inside_s=1.0, peak_fraction=None)},
    )
    assert measurement_from(asdict(figures)) == figures
