"""Loops that carry sequences, and read them: held against ONNX's evaluator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.support.model_kernels import compiled
from tests.support.model_libraries import exported
from tests.support.onnx_values import assert_computes
from tests.unit.models.control_cases import BOOL, FLOAT, INT64, Made, body, floats, model, n, value
from tuner.models.errors import ModelRefused
from tuner.models.graph import Graph, check_graph
from tuner.models.nodes import Scan
from tuner.models.reading import read_graph
from tuner.models.reference.evaluation import evaluate_graph
from tuner.models.reference.onnx_evaluation import evaluate
from tuner.models.workloads import workloads_of


def a_list(name: str) -> Any:
    return helper.make_tensor_sequence_value_info(name, FLOAT, None)


def step(nodes: Sequence[Any], results: Sequence[Any], *states: Any) -> Any:
    """A body with the number, the condition and states; the first result is the condition."""
    inputs = [value("i", INT64, []), value("c", BOOL, []), *states]
    return body([n("Identity", ["c"], ["going"]), *nodes], inputs, list(results))


def recurrent(rows: int = 70) -> Made:
    """A cell of TorchScript: the inputs are a list, so are the results, which are stacked."""
    inner = step(
        [
            n("SequenceAt", ["inputs", "i"], ["row"]),
            n("Add", ["row", "h"], ["sum"]),
            n("Tanh", ["sum"], ["t"]),
            n("SequenceInsert", ["outputs", "t"], ["more"]),
            n("Identity", ["more"], ["longer"]),
        ],
        [value("going", BOOL, []), a_list("longer"), value("t")],
        a_list("outputs"),
        value("h", FLOAT, [3]),
    )
    nodes = [
        n("SplitToSequence", ["x"], ["inputs"], axis=1, keepdims=0),
        n("SequenceLength", ["inputs"], ["length"]),
        n("SequenceEmpty", [], ["none"]),
        n("Loop", ["length", "", "none", "h0"], ["all", "last"], body=inner),
        n("ConcatFromSequence", ["all"], ["y"], axis=1, new_axis=1),
    ]
    feed = {"x": floats(3, rows) * 0.1}
    outputs = [value("y", FLOAT, [3, rows]), value("last", FLOAT, [3])]
    return model(nodes, feed, outputs, h0=floats(3, seed=1)), [feed]


def behind_others() -> Made:
    """What is in the sequence before the loop, and is inserted behind it, has other extents."""
    inner = step(
        [
            n("Gather", ["x", "i"], ["row"]),
            n("Exp", ["row"], ["e"]),
            n("SequenceInsert", ["list", "e"], ["longer"]),
        ],
        [value("going", BOOL, []), a_list("longer")],
        a_list("list"),
    )
    nodes = [
        n("SequenceConstruct", ["first"], ["begin"]),
        n("Loop", ["five", "", "begin"], ["list5"], body=inner),
        n("SequenceInsert", ["list5", "first"], ["list6"]),
        n("SequenceInsert", ["list6", "last", "two"], ["list7"]),
        n("SequenceErase", ["list7", "three"], ["list8"]),
        n("SequenceLength", ["list8"], ["count"]),
        n("ConcatFromSequence", ["list8"], ["y"], axis=-1),
    ]
    feed = {"x": floats(5, 2, 4), "first": floats(2, 1, seed=1), "last": floats(2, 3, seed=2)}
    outputs = [value("y", FLOAT, [2, 21]), value("count", INT64, [])]
    constants: dict[str, Any] = {"five": np.array(5), "two": np.array(2), "three": np.array(3)}
    return model(nodes, feed, outputs, **constants), [feed]


def ended_by_values() -> Made:
    """A number of tensors that the values decide, counted, joined and read."""
    inner = body(
        [
            n("Gather", ["x", "i"], ["row"]),
            n("ReduceMax", ["row"], ["top"], keepdims=0),
            n("Less", ["top", "most"], ["going"]),
            n("SequenceInsert", ["list", "row"], ["longer"]),
        ],
        [value("i", INT64, []), value("c", BOOL, []), a_list("list")],
        [value("going", BOOL, []), a_list("longer")],
    )
    nodes = [
        n("SequenceEmpty", [], ["none"]),
        n("Loop", ["most_rows", "yes", "none"], ["all"], body=inner),
        n("SequenceLength", ["all"], ["count"]),
        n("ConcatFromSequence", ["all"], ["stack"], axis=0, new_axis=1),
        n("ConcatFromSequence", ["all"], ["row"], axis=1),
        n("ReduceSum", ["stack", "zero"], ["sum"], keepdims=0),
    ]
    feeds = [{"x": floats(9, 2, 3), "most": np.array(m, np.float32)} for m in (9, 1.5, -9)]
    outputs = [value("count", INT64, []), value("stack", FLOAT, ["n", 2, 3]),
               value("row", FLOAT, [2, "m"]), value("sum", FLOAT, [2, 3])]  # fmt: skip
    constants: dict[str, Any] = {
        "most_rows": np.array(9),
        "yes": np.array(True),
        "zero": np.array([0]),
    }
    return model(nodes, feeds[0], outputs, **constants), feeds


def until_long(rows: int = 70) -> Made:
    """A loop that ends when the sequence, which has a tensor before, is long enough."""
    inner = body(
        [
            n("SequenceLength", ["list"], ["before"]),
            n("CastLike", ["before", "x"], ["real"]),
            n("Mul", ["x", "real"], ["row"]),
            n("SequenceInsert", ["list", "row"], ["longer"]),
            n("SequenceLength", ["longer"], ["after"]),
            n("Less", ["after", "enough"], ["going"]),
        ],
        [value("i", INT64, []), value("c", BOOL, []), a_list("list")],
        [value("going", BOOL, []), a_list("longer")],
    )
    nodes = [
        n("SequenceConstruct", ["x"], ["begin"]),
        n("Loop", ["", "yes", "begin"], ["all"], body=inner),
        n("ConcatFromSequence", ["all"], ["y"], axis=0),
    ]
    outputs, feed = [value("y", FLOAT, [2 * rows, 3])], {"x": floats(2, 3)}
    constants: dict[str, Any] = {"enough": np.array(rows), "yes": np.array(True)}
    return model(nodes, feed, outputs, **constants), [feed]


def of_several_shapes() -> Made:
    """Pieces that grow from one iteration to the next; the second is read."""
    inner = step(
        [
            n("Add", ["i", "one"], ["end"]),
            n("Reshape", ["end", "vector"], ["ends"]),
            n("Slice", ["x", "vector0", "ends"], ["piece"]),
            n("SequenceInsert", ["list", "piece"], ["longer"]),
        ],
        [value("going", BOOL, []), a_list("longer")],
        a_list("list"),
    )
    nodes = [
        n("SequenceEmpty", [], ["none"]),
        n("Loop", ["four", "", "none"], ["all"], body=inner),
        n("SequenceAt", ["all", "one"], ["second"]),
        n("ConcatFromSequence", ["all"], ["joined"], axis=0),
        n("Mul", ["joined", "joined"], ["y"]),
        n("Exp", ["second"], ["z"]),
    ]
    feed = {"x": floats(5, 2)}
    outputs = [value("y", FLOAT, [10, 2]), value("z", FLOAT, [2, 2])]
    constants: dict[str, Any] = {"four": np.array(4), "one": np.array(1), "vector": np.array([1])}
    return model(nodes, feed, outputs, **constants, vector0=np.array([0])), [feed]


def bags() -> Made:
    """EmbeddingBag as PyTorch's exporter writes it; offsets are inputs, one bag is empty."""
    then = body([n("Expand", ["nothing", "row"], ["zeros"])], [], [value("zeros")])
    other = body(
        [
            n("Slice", ["rows", "start", "end"], ["bag"]),
            n("ReduceSum", ["bag", "vector0"], ["sum"]),
        ],
        [],
        [value("sum")],
    )
    inner = body(
        [
            n("Reshape", ["k", "vector"], ["k0"]),
            n("Add", ["k0", "one"], ["k1"]),
            n("Add", ["k1", "one"], ["k2"]),
            n("Slice", ["edges", "k0", "k1"], ["start"]),
            n("Slice", ["edges", "k1", "k2"], ["end"]),
            n("Equal", ["start", "end"], ["empty"]),
            n("If", ["empty"], ["result"], then_branch=then, else_branch=other),
            n("SequenceInsert", ["list", "result"], ["longer"]),
            n("Add", ["k", "one"], ["next"]),
            n("Less", ["next", "count"], ["going"]),
        ],
        [value("i", INT64, []), value("c", BOOL, []), a_list("list"), value("k", INT64, [])],
        [value("going", BOOL, []), a_list("longer"), value("next", INT64, [])],
    )
    nodes = [
        n("Gather", ["table", "indices"], ["rows"]),
        n("Shape", ["indices"], ["size"]),
        n("Concat", ["offsets", "size"], ["edges"], axis=0),
        n("SequenceEmpty", [], ["none"]),
        n("Less", ["zero", "count"], ["some"]),
        n("Loop", ["", "some", "none", "zero"], ["list1", "k1"], body=inner),
        n("ConcatFromSequence", ["list1"], ["y"], axis=0),
    ]
    feeds = [
        {"indices": np.array([1, 6, 2, 2, 0, 5]), "offsets": np.array(offsets)}
        for offsets in ([0, 2, 2, 5], [0, 0, 1, 6])
    ]
    constants: dict[str, Any] = {
        "one": np.array(1),
        "vector": np.array([1]),
        "vector0": np.array([0]),
    }
    made = model(
        nodes, feeds[0], [value("y", FLOAT, [4, 3])], **constants, table=floats(7, 3),
        nothing=np.zeros(1, np.float32), row=np.array([1, 3]), zero=np.array(0), count=np.array(4),
    )  # fmt: skip
    return made, feeds


CASES: Sequence[Callable[[], Made]] = (
    recurrent, behind_others, ended_by_values, until_long, of_several_shapes, bags,
)  # fmt: skip


def graph_of(made: Any) -> Graph:
    onnx.checker.check_model(made)
    graph = read_graph(made.SerializeToString(), {})
    check_graph(graph)
    return graph


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_graph_computes_what_the_file_says(case: Callable[[], Made]) -> None:
    made, feeds = case()
    assert_computes(graph_of(made), made, feeds)


@pytest.mark.slow
@pytest.mark.parametrize("case", [recurrent, bags], ids=lambda case: case.__name__)
def test_a_library_computes_what_the_file_says(case: Callable[[], Made], tmp_path: Path) -> None:
    made, feeds = case()
    graph = graph_of(made)
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    module = exported(graph, kernels, tmp_path / "out", "net")
    for feed in [*feeds, *feeds]:
        results = module.run_net(*feed.values())
        results = results if isinstance(results, tuple) else (results,)
        for got, right in zip(results, evaluate(made, list(feed.values())), strict=True):
            np.testing.assert_allclose(got.reshape(np.shape(right)), right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("case", "count", "states"), [(recurrent, 70, 1), (until_long, 69, 0), (bags, 4, 0)]
)
def test_a_sequence_that_grows_is_a_result_of_a_scan(
    case: Callable[[], Made], count: int, states: int
) -> None:
    (scan,) = [node for node in graph_of(case()[0]).nodes if isinstance(node, Scan)]
    assert (scan.count, len(scan.states), scan.condition) == (count, states, None)


def carrying(nodes: Sequence[Any], result: Any) -> Any:
    """A loop that computes a sequence of a sequence and the tensor `x`."""
    inner = step(nodes, [value("going", BOOL, []), result], a_list("list"))
    after = [
        n("SequenceConstruct", ["x"], ["begin"]),
        n("Loop", ["three", "", "begin"], ["all"], body=inner),
        n("ConcatFromSequence", ["all"], ["y"], axis=0),
    ]
    outputs = [value("y", FLOAT, None)]
    return model(after, {"x": floats(2, 3)}, outputs, three=np.array(3), first=np.array(0))


@pytest.mark.parametrize(
    "nodes",
    [
        [n("SequenceInsert", ["list", "x", "first"], ["after"])],
        [n("SequenceInsert", ["list", "x"], ["one"]), n("SequenceInsert", ["one", "x"], ["after"])],
        [n("SequenceAt", ["list", "first"], ["t"]), n("SequenceInsert", ["list", "t"], ["after"])],
        [n("SequenceErase", ["list"], ["after"])],
    ],
    ids=["in front", "two", "read", "erased"],
)
def test_other_uses_of_a_carried_sequence_are_refused(nodes: Sequence[Any]) -> None:
    made = carrying(nodes, a_list("after"))
    reason = r"operator Loop \('all'\) carries the sequence 'list'; each iteration must insert"
    with pytest.raises(ModelRefused, match=reason):
        read_graph(made.SerializeToString(), {})


def test_a_computed_position_in_tensors_of_several_shapes_is_refused() -> None:
    nodes = [
        n("SequenceConstruct", ["x", "z"], ["list"]),
        n("SequenceAt", ["list", "place"], ["y"]),
    ]
    feed = {"x": floats(2), "z": floats(3), "place": np.array(0)}
    made = model(nodes, feed, [value("y", FLOAT, None)])
    with pytest.raises(ModelRefused, match=r"which have 2 shapes; .* 'place' by --inputs"):
        read_graph(made.SerializeToString(), {})


def test_a_tensor_at_a_computed_position_is_read() -> None:
    nodes = [
        n("Neg", ["x"], ["z"]),
        n("SequenceConstruct", ["x", "z", "x"], ["list"]),
        n("SequenceAt", ["list", "place"], ["y"]),
    ]
    feed = {"x": floats(2, 3), "place": np.array(1)}
    graph = graph_of(model(nodes, feed, [value("y", FLOAT, [2, 3])]))
    for place in (0, 1, -2):
        tensors = evaluate_graph(graph, [feed["x"], np.array(place)])
        right = -feed["x"] if place else feed["x"]
        np.testing.assert_array_equal(tensors[graph.outputs[0]].reshape(2, 3), right)
