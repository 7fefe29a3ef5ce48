"""What becomes of a graph: epilogues attached, reshapes gone, layouts chosen once,
memory shared."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.support import onnx_networks as nets
from tests.support.graph_values import graph_outputs
from tests.support.targets import ZEN5
from tuner.models.errors import ModelRefused
from tuner.models.graph import Graph, check_graph
from tuner.models.graph_archive import packed, unpacked
from tuner.models.library.memory import plan_memory
from tuner.models.nodes import reads_of
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.contraction import matmul
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.movement import reshape
from tuner.models.operators.scalars import unary
from tuner.models.passes.fusion import fuse
from tuner.models.reading import read_graph
from tuner.models.reference.evaluation import evaluate_graph
from tuner.models.workloads import workloads_of
from tuner.spaces.by_target import space_of
from tuner.workload.expression import Read, Stage


def graph_of(name: str) -> Graph:
    model = (
        nets.resnet(size=16, width=8)
        if name == "resnet"
        else nets.mobilenet(size=16, width=8, blocks=((8, 1), (16, 2)))
        if name == "mobilenet"
        else nets.bert()
    )
    return read_graph(nets.serialized(model), {})


@pytest.fixture(scope="module")
def graphs() -> dict[str, Graph]:
    return {name: graph_of(name) for name in ("resnet", "mobilenet", "bert")}


def test_convolutions_take_what_follows_them(graphs: dict[str, Graph]) -> None:
    """One kernel a convolution with batch norm, activation and residual."""
    for name, convolutions in (("resnet", 6), ("mobilenet", 7)):
        assert (
            len([node for node in graphs[name].nodes if node.name.startswith("conv2d")])
            == convolutions
        )
    # Besides a pooling, the mean and the classes.
    assert len(graphs["resnet"].nodes) == 9
    assert len(graphs["mobilenet"].nodes) == 9


def test_axes_of_one_point_are_gone(graphs: dict[str, Graph]) -> None:
    """Of a 1x1 convolution only the channels are summed, of a depthwise one only the window."""
    stages = [
        stage
        for node in graphs["mobilenet"].expressions
        for stage in node.stages
        if stage.reduce_axes
    ]
    assert {len(stage.reduce_axes) for stage in stages} == {1, 2, 3}
    assert all(axis.extent > 1 for stage in stages for axis in stage.reduce_axes)


def test_nothing_is_only_moved(graphs: dict[str, Graph]) -> None:
    """Layouts and shapes change where values are read, or are the same bytes."""
    for graph in graphs.values():
        assert not [node for node in graph.expressions if all(map(is_copy, node.stages))]


def is_copy(stage: Stage) -> bool:
    return stage.reducer is None and isinstance(stage.body, Read)


def test_gelu_ends_its_product(graphs: dict[str, Graph]) -> None:
    assert len(graphs["bert"].nodes) == 10


@pytest.mark.parametrize(
    ("shape", "other", "count"),
    [
        ((4, 16, 24), (4, 16, 24), 1),
        ((1, 64, 24), (1, 64, 24), 1),
        ((4, 16, 24), (1, 16, 24), 2),
    ],
)
def test_a_map_ends_a_product_that_it_sees_in_another_shape(
    shape: tuple[int, ...], other: tuple[int, ...], count: int
) -> None:
    """Where both walk the rows one after the other; not where rows have something in common."""
    builder = GraphBuilder()
    x, y, z = (builder.input(extents, "float32") for extents in ((64, 8), (8, 24), other))
    viewed = reshape(matmul(x, y), shape)
    result = elementwise("added", lambda a, b: unary("tanh", a) + b, viewed, z)
    graph = builder.graph([result], ["x", "y", "z", "r"])
    fused = fuse(graph)
    check_graph(fused)
    workloads = workloads_of(fused)
    assert len(workloads) == count
    assert [len(space_of(part.workload, ZEN5, 1).algorithm.groups) for part in workloads] == (
        [1] * count
    )
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(tensor.shape).astype(np.float32) for tensor in graph.inputs]
    np.testing.assert_allclose(graph_outputs(fused, given), graph_outputs(graph, given), atol=1e-5)


def test_a_softmax_and_its_products_are_one_node(graphs: dict[str, Graph]) -> None:
    maxima = [
        node
        for node in graphs["bert"].expressions
        if any(stage.reducer == "max" for stage in node.stages)
    ]
    sums = [[stage.name for stage in node.stages if stage.reducer == "sum"] for node in maxima]
    assert [len(names) for names in sums] == [3]  # scores, weights of a row, weighted values


@pytest.mark.parametrize(("results", "nodes"), [(("y",), 1), (("y", "w"), 3)])
def test_weights_that_are_a_result_stay_a_node(results: tuple[str, ...], nodes: int) -> None:
    info, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    shapes = {"q": [2, 9, 4], "k": [2, 4, 11], "v": [2, 11, 5], "w": [2, 9, 11], "y": [2, 9, 5]}
    values = {name: info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    made = onnx.helper.make_model(
        onnx.helper.make_graph(
            [
                node("MatMul", ["q", "k"], ["s"]),
                node("Softmax", ["s"], ["w"], axis=-1),
                node("MatMul", ["w", "v"], ["y"]),
            ],
            "attention",
            [values[name] for name in ("q", "k", "v")],
            [values[name] for name in results],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 18)],
        ir_version=9,
    )
    assert len(read_graph(made.SerializeToString(), {}).nodes) == nodes


def test_equal_kernels_are_tuned_once(graphs: dict[str, Graph]) -> None:
    calls = [part.calls for part in workloads_of(graphs["bert"])]
    assert sum(calls) == len(graphs["bert"].nodes)
    assert max(calls) == 3  # query, key and value


def test_a_graph_survives_the_way_between_processes(graphs: dict[str, Graph]) -> None:
    graph = graphs["bert"]
    back = unpacked(packed(graph))
    assert (
        back.nodes == graph.nodes and back.aliases == graph.aliases and back.labels == ("ids", "y")
    )
    assert all(
        np.array_equal(back.constants[name], array) for name, array in graph.constants.items()
    )


def test_a_damaged_graph_is_refused(graphs: dict[str, Graph]) -> None:
    content = packed(graphs["bert"])
    with pytest.raises(ModelRefused):
        unpacked(content[: len(content) // 2])
    with pytest.raises(ModelRefused):
        unpacked(b"PK\x03\x04 and no more")


def test_a_graph_out_of_order_is_refused(graphs: dict[str, Graph]) -> None:
    graph = graphs["resnet"]
    turned = Graph(
        inputs=graph.inputs,
        constants=graph.constants,
        nodes=graph.nodes[::-1],
        outputs=graph.outputs,
        labels=graph.labels,
    )
    with pytest.raises(ModelRefused):
        check_graph(turned)


def test_tensors_that_live_apart_share_memory(graphs: dict[str, Graph]) -> None:
    for graph in graphs.values():
        plan = plan_memory(graph)
        spans = []
        for number, node in enumerate(graph.nodes):
            for name in node.outputs:
                last = max(
                    [
                        number,
                        *(
                            number
                            for number, other in enumerate(graph.nodes)
                            for operand in reads_of(other)
                            if graph.root(operand) == name
                        ),
                    ]
                )
                if plan.places[name].kind == "arena":
                    start = plan.places[name].position
                    assert start % 64 == 0
                    spans.append((number, last, start, start + node.tensor(name).nbytes))
        for first, last, start, end in spans:
            assert end <= plan.arena_bytes
            for other_first, other_last, other_start, other_end in spans:
                if (
                    (first, start) != (other_first, other_start)
                    and first <= other_last
                    and other_first <= last
                ):
                    assert end <= other_start or other_end <= start
        assert plan.arena_bytes < sum(end - start for _, _, start, end in spans)


def test_an_index_that_could_wrap_around_is_stored() -> None:
    """Differences of integers that are computed at run time are read by GatherElements."""
    info, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    float32, int64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    made = onnx.helper.make_model(
        onnx.helper.make_graph(
            [
                node("Sub", ["at", "back"], ["places"]),
                node("GatherElements", ["x", "places"], ["y"], axis=1),
            ],
            "gathered",
            [info("x", float32, [1, 9]), info("at", int64, [1, 1])],
            [info("y", float32, [1, 4])],
            [onnx.numpy_helper.from_array(np.arange(4)[None], "back")],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 18)],
        ir_version=9,
    )
    graph = read_graph(made.SerializeToString(), {})
    assert workloads_of(graph)
    x = np.random.default_rng(0).standard_normal((1, 9)).astype(np.float32)
    for begin in (3, 8, -1):
        tensors = evaluate_graph(graph, [x, np.array([[begin]])])
        np.testing.assert_array_equal(tensors[graph.outputs[0]], x[:, begin - np.arange(4)])
