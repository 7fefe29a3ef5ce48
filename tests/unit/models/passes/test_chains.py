"""Chains of a model's nodes: which there are, and that they compute what the nodes do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from tests.support import onnx_networks as nets
from tests.support.graph_values import graph_outputs
from tests.support.measured_target import with_rates
from tests.support.targets import SM_90, host_target
from tuner.models.graph import Graph, check_graph
from tuner.models.passes.chains import chains_of
from tuner.models.passes.substitutions import (
    Substitution,
    choice_of,
    substitution_workloads,
    with_choice,
    with_substitutions,
)
from tuner.models.reading import read_graph
from tuner.models.workloads import workload_of, workloads_of
from tuner.target.target import Target


def machine(bytes_per_s: float = 1e9, flops: float = 1e12) -> Target:
    """Of this CPU's instructions; at first one whose memory is slow."""
    return with_rates(host_target(), bytes_per_s=bytes_per_s, flops=flops)


def graph_of(model: onnx.ModelProto) -> Graph:
    return read_graph(nets.serialized(model), {})


@pytest.fixture(scope="module")
def mobilenet() -> Graph:
    return graph_of(nets.mobilenet(size=16, width=8, blocks=((8, 1), (12, 2))))


@pytest.fixture(scope="module")
def chains(mobilenet: Graph) -> tuple[Substitution, ...]:
    return chains_of(mobilenet, machine())


def test_depthwise_convolutions_are_placed_in_the_products_behind_them(
    mobilenet: Graph, chains: tuple[Substitution, ...]
) -> None:
    assert chains
    windows = [
        sum(bool(stage.reduce_axes) and len(stage.reduce_axes) >= 2 for stage in part.stages)
        for chain in chains
        for part in chain.parts
    ]
    assert any(windows)
    parts = [id(part) for chain in chains for part in chain.parts]
    assert len(parts) == len({*parts}) and {*parts} <= {id(node) for node in mobilenet.nodes}
    assert all(2 <= len(chain.parts) <= 3 for chain in chains)


def test_a_graph_of_chains_computes_the_same(
    mobilenet: Graph, chains: tuple[Substitution, ...]
) -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)
    want = graph_outputs(mobilenet, [x])
    fewer = with_substitutions(mobilenet, chains)
    check_graph(fewer)
    assert len(mobilenet.nodes) - len(fewer.nodes) == sum(len(c.parts) - 1 for c in chains)
    np.testing.assert_allclose(graph_outputs(fewer, [x])[0], want[0], rtol=1e-4)
    both = with_choice(mobilenet, chains)
    for flag in (0, 1):
        got = graph_outputs(both, [x, np.array([flag], np.uint8)])
        np.testing.assert_allclose(got[0], want[0], rtol=1e-4)


def test_nodes_of_a_choice_have_the_kernels_that_they_have_without(
    mobilenet: Graph, chains: tuple[Substitution, ...]
) -> None:
    """Renamed results change no key, and numerics stay."""
    fast = replace(mobilenet, fast=frozenset(chains[0].nodes[0].outputs))
    both = with_choice(fast, chains)
    keys = {node.outputs[0]: workload_of(node, both).key for node in both.expressions}
    for chain in chains:
        (together,), apart = choice_of(chain)
        strict = replace(mobilenet, fast=frozenset())
        assert keys[together] == workload_of(chain.nodes[0], strict).key
        assert [keys[name] for name in apart] == [workload_of(p, fast).key for p in chain.parts]
    assert not with_substitutions(fast, chains[:1]).fast


def test_workloads_of_chains_say_what_they_stand_for(
    mobilenet: Graph, chains: tuple[Substitution, ...]
) -> None:
    needed = {part.workload.key for part in workloads_of(mobilenet)}
    parts = substitution_workloads(mobilenet, chains)
    assert sum(part.calls for part in parts) == len(chains)
    for part in parts:
        assert len(part.instead_of) >= 2 and {*part.instead_of} <= needed
        assert part.workload.key not in needed


def test_an_mlp_is_a_chain_where_memory_is_slow() -> None:
    graph = graph_of(nets.perceptron(rows=4, sizes=(16, 32, 8)))
    (chain,) = chains_of(graph, machine())
    assert [part.name for part in chain.parts] == [node.name for node in graph.nodes[:2]]


def test_there_are_none_where_little_is_gained_or_nothing_can_be_fused() -> None:
    graph = graph_of(nets.perceptron(rows=4, sizes=(16, 32, 8)))
    assert chains_of(graph, machine(bytes_per_s=1e15, flops=1e9)) == ()
    assert chains_of(graph, replace(machine(), limits=None)) == ()
    assert chains_of(graph, replace(SM_90, limits=machine().limits)) == ()


@pytest.mark.parametrize("shown", [("h", "y"), ("y", "z")])
def test_what_others_read_too_stays_a_node(shown: tuple[str, ...]) -> None:
    """The value between is an output, or another node reads it."""
    make = nets.Maker(seed=2)
    info = onnx.helper.make_tensor_value_info
    shapes = {"h": (4, 32), "y": (4, 8), "z": (4, 8)}
    weights = {
        "a": make.rng.standard_normal((16, 32)).astype(np.float32),
        "b": make.rng.standard_normal((32, 8)).astype(np.float32),
        "c": make.rng.standard_normal((32, 8)).astype(np.float32),
    }
    products = [("x", "a", "h"), ("h", "b", "y"), ("h", "c", "z")]
    made = onnx.helper.make_model(
        onnx.helper.make_graph(
            [
                onnx.helper.make_node("MatMul", [left, right], [out])
                for left, right, out in products
                if out in (*shown, "h")
            ],
            "products",
            [info("x", onnx.TensorProto.FLOAT, (4, 16))],
            [info(name, onnx.TensorProto.FLOAT, shapes[name]) for name in shown],
            [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 18)],
        ir_version=9,
    )
    assert chains_of(graph_of(made), machine()) == ()
