"""Siblings of a model: which products become one, who reads them then, and that all is equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support import onnx_networks as nets
from tests.support.graph_values import graph_outputs
from tests.support.measured_target import with_rates
from tests.support.targets import SM_90, host_target
from tuner.models.arrays import Array
from tuner.models.graph import Graph, check_graph
from tuner.models.passes.siblings import siblings_of
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

ROWS, WIDTH = 6, 32
FLOAT = TensorProto.FLOAT


def machine(bytes_per_s: float = 1e10) -> Target:
    return with_rates(host_target(), bytes_per_s=bytes_per_s, flops=1e11)


def graph_of(
    make: nets.Maker,
    inputs: Mapping[str, tuple[int, ...]],
    outputs: Mapping[str, tuple[int, ...]],
    kind: int = FLOAT,
    made: int = FLOAT,
) -> Graph:
    """The fused graph of what was added to a maker, with inputs and outputs of these shapes."""
    constants = [numpy_helper.from_array(value, name) for name, value in make.constants.items()]
    model = helper.make_model(
        helper.make_graph(
            make.nodes,
            "net",
            [helper.make_tensor_value_info(n, kind, shape) for n, shape in inputs.items()],
            [helper.make_tensor_value_info(n, made, shape) for n, shape in outputs.items()],
            constants,
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )
    onnx.checker.check_model(model)
    return read_graph(model.SerializeToString(), {})


def product(make: nets.Maker, width: int, *, bias: bool = True, source: str = "x") -> str:
    if bias:
        return make.linear(source, WIDTH, width)
    return make.add("MatMul", source, make.weights(f"w{len(make.nodes)}", WIDTH, width))


def sums(make: nets.Maker, values: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """An output of the total of each row of each value."""
    axis = make.constant("axis", np.array([1]))
    return {make.add("ReduceSum", value, axis, keepdims=1): (ROWS, 1) for value in values}


def inputs_of(graph: Graph) -> list[Array]:
    rng = np.random.default_rng(5)
    return [
        (rng.standard_normal(t.shape) if t.dtype == "float32" else rng.integers(0, 9, t.shape))
        .astype(t.dtype)
        for t in graph.inputs
    ]  # fmt: skip


def checked(graph: Graph) -> tuple[Substitution, ...]:
    """The siblings of a graph, which computes the same with them, and with the choice."""
    found = siblings_of(graph, machine())
    inputs = inputs_of(graph)
    want = graph_outputs(graph, inputs)
    fewer, both = with_substitutions(graph, found), with_choice(graph, found)
    check_graph(fewer)
    for got in (
        graph_outputs(fewer, inputs),
        *(graph_outputs(both, [*inputs, np.array([flag], np.uint8)]) for flag in (0, 1)),
    ):
        for output, right in zip(got, want, strict=True):
            np.testing.assert_allclose(output, right, rtol=1e-4, atol=1e-5)
    merged = sum(len(each.parts) - len(each.nodes) for each in found)
    assert len(fewer.nodes) == len(graph.nodes) - merged
    return found


def widths_of(group: Substitution) -> list[int]:
    """How many columns each sibling has, those of the joint product last."""
    joint = group.nodes[0]
    readers = {name for node in group.nodes[1:] for name in node.outputs}
    siblings = [part for part in group.parts if part.outputs[0] not in readers]
    return [node.tensor(node.outputs[0]).shape[-1] for node in (*siblings, joint)]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("widths", [(24, 40), (24, 24, 24), (64, 16, 16)])
def test_products_of_one_input_are_one_product(widths: tuple[int, ...], *, bias: bool) -> None:
    make = nets.Maker()
    values = [product(make, width, bias=bias) for width in widths]
    graph = graph_of(make, {"x": (ROWS, WIDTH)}, sums(make, values))
    (group,) = checked(graph)
    assert widths_of(group) == [*widths, sum(widths)]
    assert len(group.nodes) == 1 + len(widths)
    # The graph holds the weights once: those apart, or joined.
    fewer = with_substitutions(graph, [group])
    assert fewer.nbytes == graph.nbytes
    assert all(array.shape[-1] == sum(widths) for array in fewer.constants.values())


@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (4, 1)])
def test_attention_reads_queries_keys_and_values_where_they_lie(heads: int, groups: int) -> None:
    """Grouped heads have keys and values of a quarter of the width."""
    make, each = nets.Maker(), 16
    q, k, v = (
        make.add(
            "Transpose",
            make.add(
                "Reshape",
                product(make, count * each),
                make.constant(f"apart{count}", np.array([1, ROWS, count, each])),
            ),
            perm=order,
        )
        for count, order in ((heads, [0, 2, 1, 3]), (groups, [0, 2, 3, 1]), (groups, [0, 2, 1, 3]))
    )
    seen = make.add("Softmax", make.add("MatMul", q, k), axis=-1)
    mixed = make.add("MatMul", seen, v)
    graph = graph_of(make, {"x": (ROWS, WIDTH)}, {mixed: (1, heads, ROWS, each)})
    (group,) = checked(graph)
    assert widths_of(group) == [
        heads * each,
        groups * each,
        groups * each,
        (heads + 2 * groups) * each,
    ]
    joint, *readers = group.nodes
    assert joint.outputs[0] in {tensor.name for node in readers for tensor in node.inputs}
    assert len(with_substitutions(graph, [group]).nodes) == len(graph.nodes) - 2


def test_what_is_an_output_stays_a_product_of_its_own() -> None:
    make = nets.Maker()
    shown, *values = (product(make, width) for width in (24, 24, 40))
    graph = graph_of(make, {"x": (ROWS, WIDTH)}, {shown: (ROWS, 24), **sums(make, values)})
    (group,) = checked(graph)
    assert widths_of(group) == [24, 40, 64]


def test_what_all_do_to_their_results_stays_with_the_product() -> None:
    make = nets.Maker()
    values = [make.add("Relu", product(make, width)) for width in (24, 24, 40)]
    values.append(make.add("Tanh", product(make, 24)))
    graph = graph_of(make, {"x": (ROWS, WIDTH)}, sums(make, values))
    (group,) = checked(graph)
    assert widths_of(group) == [24, 24, 40, 88]
    assert len(group.nodes[0].stages) == len(group.parts[0].stages) > 1


def test_no_siblings_are_products_of_other_tensors_of_inputs_and_of_few() -> None:
    def graph(sources: tuple[str, str], *, given: bool = False) -> Graph:
        make = nets.Maker()
        inputs = dict.fromkeys(sources, (ROWS, WIDTH))
        if given:
            inputs |= {"v": (WIDTH, 24), "w": (WIDTH, 24)}
            values = [make.add("MatMul", "x", name) for name in "vw"]
        else:
            values = [product(make, 24, source=source) for source in sources]
        return graph_of(make, inputs, sums(make, values))

    assert siblings_of(graph(("x", "x")), machine())
    assert siblings_of(graph(("x", "z")), machine()) == ()
    assert siblings_of(graph(("x", "x"), given=True), machine()) == ()
    assert siblings_of(graph(("x", "x")), replace(machine(), limits=None)) == ()
    assert siblings_of(graph(("x", "x")), replace(SM_90, limits=machine().limits)) == ()


def test_dtypes_are_kept_apart() -> None:
    """Of three products of 8-bit integers two have weights of the same dtype."""
    make = nets.Maker()
    dtypes = (np.int8, np.uint8, np.int8)
    values = [
        make.add(
            "MatMulInteger",
            "x",
            make.constant(f"w{n}", make.rng.integers(0, 99, (WIDTH, 24)).astype(dtype)),
        )
        for n, dtype in enumerate(dtypes)
    ]
    graph = graph_of(
        make, {"x": (ROWS, WIDTH)}, sums(make, values), TensorProto.UINT8, TensorProto.INT32
    )
    (group,) = checked(graph)
    joint = group.nodes[0]
    assert widths_of(group) == [24, 24, 48]
    assert [t.dtype for t in joint.inputs if t.name in group.constants] == ["int8"]


def test_who_cannot_read_in_place_keeps_its_product() -> None:
    """Rows that follow each other without a gap are no longer there."""
    make = nets.Maker()
    flat, *values = (product(make, 24) for _ in range(3))
    flat = make.add("Reshape", flat, make.constant("whole", np.array([ROWS * 24])))
    windows = make.add("Reshape", flat, make.constant("windows", np.array([9, 16])))
    total = make.add("ReduceSum", windows, make.constant("first", np.array([0])), keepdims=1)
    graph = graph_of(make, {"x": (ROWS, WIDTH)}, {total: (1, 16), **sums(make, values)})
    (group,) = checked(graph)
    assert widths_of(group) == [24, 24, 48]


def branches() -> Graph:
    """A module of three branches: 1x1, 1x1 before padded windows, and two windows in a row."""
    make = nets.Maker()

    def conv(source: str, channels: tuple[int, int], kernel: int) -> str:
        return make.add("Relu", make.conv(source, channels, kernel))

    first = conv("x", (16, 24), 1)
    second = conv(conv("x", (16, 8), 1), (8, 16), 3)
    third = conv(conv(conv("x", (16, 12), 1), (12, 8), 3), (8, 8), 3)
    joined = make.add("Concat", first, second, third, axis=1)
    total = make.add("GlobalAveragePool", joined)
    return graph_of(make, {"x": (1, 16, 5, 5)}, {total: (1, 48, 1, 1)})


def test_convolutions_of_branches_are_one() -> None:
    """Padding lies beyond the image, never beyond the channels of one branch."""
    (group,) = checked(branches())
    assert widths_of(group) == [24, 8, 12, 44]
    assert [node.name for node in group.between]  # of the third branch


def test_nodes_of_a_choice_have_the_kernels_that_they_have_without() -> None:
    graph = branches()
    (group,) = siblings_of(graph, machine())
    fast = replace(graph, fast=frozenset(node.outputs[0] for node in group.parts + group.between))
    both = with_choice(fast, [group])
    keys = {node.outputs[0]: workload_of(node, both).key for node in both.expressions}
    together, apart = choice_of(group)
    assert [keys[name] for name in together] == [made.key for made in group.workloads(graph)]
    assert [keys[name] for name in apart] == [workload_of(part, fast).key for part in group.parts]
    # Numerics of what stays are what they were.
    kept = {node.outputs[0] for node in group.between}
    assert with_substitutions(fast, [group]).fast == kept
    assert len([name for name in both.fast if name.endswith("_together")]) == len(kept)


def test_workloads_of_siblings_say_what_they_stand_for() -> None:
    graph = read_graph(nets.serialized(nets.bert(layers=2)), {})
    groups = siblings_of(graph, machine())
    assert len(groups) == 2
    needed = {part.workload.key for part in workloads_of(graph)}
    parts = substitution_workloads(graph, groups)
    keys = {part.workload.key for part in parts}
    assert len(parts) == 2 and keys.isdisjoint(needed)
    for part in parts:
        assert part.calls == 2 and {*part.beside} == keys - {part.workload.key}
        assert len(part.instead_of) == 4 and {*part.instead_of} <= needed


def test_no_node_is_in_two_substitutions() -> None:
    graph = read_graph(nets.serialized(nets.bert()), {})
    (group,) = siblings_of(graph, machine())
    reader = Substitution(nodes=group.parts[-1:], parts=group.parts[-1:])
    assert siblings_of(graph, machine(), [reader]) == ()


def test_what_spares_little_is_not_compared() -> None:
    graph = read_graph(nets.serialized(nets.bert()), {})
    assert siblings_of(graph, machine())
    assert siblings_of(graph, machine(bytes_per_s=1e15)) == ()


def test_what_takes_no_time_is_not_compared() -> None:
    make = nets.Maker()
    values = [product(make, width) for width in (2, 3)]
    large = make.linear(make.linear("z", WIDTH, 4096), 4096, 4)
    given = dict.fromkeys("xz", (ROWS, WIDTH))
    graph = graph_of(make, given, {large: (ROWS, 4), **sums(make, values)})
    assert siblings_of(graph, machine()) == ()
