"""Tensors that iterations append to, or do not: against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.unit.models.bounded_models import (
    FLOAT,
    INT64,
    Array,
    agree,
    compare,
    model_of,
    node,
    read,
)
from tuner.models.errors import ModelRefused
from tuner.models.nodes import Scan
from tuner.models.reading import read_graph

BOOL = TensorProto.BOOL
X = np.random.default_rng(0).standard_normal((70, 3)).astype(np.float32)
CONSTANTS = {
    "zero": np.float32(0),
    "none": np.empty((0, 3), np.float32),
    "nothing": np.empty(0, np.int64),
    "some": np.full((2, 3), 9, np.float32),
    "trips": np.int64(70),
    "three": np.int64(3),
    "yes": np.array(True),
    "first": [0],
    "flat": [-1],
    "unit": np.int64(1),
    "k0": np.int64(0),
    "most": np.float32(1.5),
}


def side(nodes: Sequence[Any], result: str) -> Any:
    return helper.make_graph(list(nodes), "side", [], [helper.make_empty_tensor_value_info(result)])


def body(nodes: Sequence[Any], results: str, *states: tuple[str, int, Sequence[Any]]) -> Any:
    """Of the number `i`, the condition `c` and states; the first result is the condition."""
    inputs = [("i", INT64, []), ("c", BOOL, []), *states]
    return helper.make_graph(
        list(nodes),
        "body",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_empty_tensor_value_info(name) for name in results.split()],
    )


KEPT = ("kept", FLOAT, ["n", 3])
ROW = [
    node("Gather", "x i", "row"),
    node("Unsqueeze", "row first", "piece"),
    node("ReduceSum", "row first", "sum", keepdims=0),
    node("Greater", "sum zero", "is_good"),
    node("Identity", "c", "going"),
]
APPENDED = side([node("Concat", "kept piece", "longer", axis=0)], "longer")
PUT_IN_FRONT = side([node("Concat", "piece kept", "longer", axis=0)], "longer")
LEFT = side([node("Identity", "kept", "same")], "same")


def chosen(then: Any, other: Any = LEFT, condition: str = "is_good", result: str = "after") -> Any:
    return node("If", condition, result, then_branch=then, else_branch=other)


def loop(inner: Any, begin: str = "none", trips: str = "trips", starts: str = "yes") -> Any:
    return helper.make_node("Loop", [trips, starts, begin], ["y"], body=inner)


TWICE = side(
    [node("Greater", "sum most", "is_great"),
     chosen(side([node("Concat", "kept piece piece", "more", axis=0)], "more"), APPENDED,
            "is_great", "twice")],
    "twice",
)  # fmt: skip
SMALL = [node("ReduceMax", "row", "top", keepdims=0), node("Less", "top most", "below")]
CASES: Mapping[str, Sequence[Any]] = {
    "appended": [loop(body([*ROW, chosen(APPENDED)], "going after", KEPT))],
    "behind others": [loop(body([*ROW, chosen(APPENDED)], "going after", KEPT), "some")],
    "put in front": [loop(body([*ROW, chosen(PUT_IN_FRONT)], "going after", KEPT), "some")],
    "once or twice": [loop(body([*ROW, chosen(TWICE)], "going after", KEPT))],
    "ended by values": [
        loop(body([*ROW, *SMALL, chosen(APPENDED)], "below after", KEPT), "some")
    ],
    "in front, ended by values": [
        loop(body([*ROW, *SMALL, chosen(PUT_IN_FRONT)], "below after", KEPT), "some")
    ],
    "three times": [loop(body([*ROW, chosen(APPENDED)], "going after", KEPT), trips="three")],
    "what is selected": [
        loop(
            body(
                [*ROW, node("Greater", "row zero", "good"), node("Compress", "row good", "values"),
                 node("Concat", "kept values", "after", axis=0)],
                "going after", ("kept", FLOAT, ["n"]),
            ),
            "empty",
        )
    ],
}  # fmt: skip


def inputs_of() -> Sequence[Mapping[str, Array]]:
    return [{"x": x} for x in (X, -np.abs(X), np.abs(X), X[::-1].copy())]


@pytest.mark.parametrize("name", CASES)
def test_what_iterations_append_is_counted(name: str) -> None:
    cases = inputs_of()
    content = model_of(
        cases[0], CASES[name], {"y": 0}, {**CONSTANTS, "empty": np.empty(0, np.float32)}
    )
    graph = agree(content, *cases)
    scans = [each for each in graph.nodes if isinstance(each, Scan) and each.name != "positions"]
    assert len(scans) == 1


def bags(*, starts: int, late: bool) -> tuple[bytes, Sequence[Mapping[str, Array]]]:
    """EmbeddingBag with a padding index as PyTorch's exporter writes it: of each bag the places
    that are not padding, found one by one between offsets."""
    table = np.random.default_rng(1).standard_normal((7, 3)).astype(np.float32)
    left = side([node("Identity", "places", "same")], "same")
    grown = side([node("Concat", "places p", "longer", axis=0)], "longer")
    inner = body(
        [
            node("Gather", "indices j", "index"),
            node("Equal", "index padding", "is_padding"),
            node("Not", "is_padding", "is_there"),
            node("Reshape", "j flat", "p"),
            chosen(grown, left, "is_there"),
            node("Add", "j unit", "next"),
            node("Less", "next end", "going"),
        ],
        "going after next",
        ("places", INT64, ["n"]),
        ("j", INT64, []),
    )
    empty = side([node("Identity", "zeros", "z")], "z")
    full = side(
        [node("Gather", "rows kept", "bag"), node("ReduceSum", "bag first", "total")], "total"
    )
    outer = body(
        [
            node("Gather", "edges k", "start"),
            node("Add", "k unit", "following"),
            node("Gather", "edges following", "end"),
            node("Less", "start end", "begins"),
            helper.make_node(
                "Loop", ["", "begins", "nothing", "start"], ["kept", "j1"], body=inner
            ),
            node("Size", "kept", "size"),
            node("Equal", "size k0", "is_empty"),
            chosen(empty, full, "is_empty", "bag_sum"),
            node("SequenceInsert", "list bag_sum", "more"),
            node("Less", "following count", "goes_on"),
        ],
        "goes_on more following",
        ("k", INT64, []),
    )  # fmt: skip
    a_list = helper.make_tensor_sequence_value_info("list", FLOAT, None)
    outer.input.insert(2, a_list)
    outer.output[1].CopyFrom(helper.make_tensor_sequence_value_info("more", FLOAT, None))
    nodes = [
        node("Gather", "table indices", "rows"),
        node("SequenceEmpty", "", "begin"),
        helper.make_node("Loop", ["", "yes", "begin", "k0"], ["all", "k1"], body=outer),
        node("ConcatFromSequence", "all", "y", axis=0),
    ]
    constants = {
        **CONSTANTS, "table": table, "padding": np.int64(2), "zeros": np.zeros((1, 3), np.float32),
        "count": np.int64(starts),
    }  # fmt: skip
    indices = np.random.default_rng(2).integers(0, 7, 4 * starts)
    indices[:4] = 2
    even = np.arange(0, 4 * starts + 1, 4)
    several = np.sort(np.random.default_rng(3).integers(0, 4 * starts + 1, starts + 1))
    if late:
        cases = [{"indices": indices, "edges": edges} for edges in (even, several, 0 * several)]
    else:
        cases = [{"indices": indices}, {"indices": np.full_like(indices, 2)}]
        constants["edges"] = even
    return model_of(cases[0], nodes, {"y": 2}, constants), cases


@pytest.mark.parametrize(("starts", "late"), [(3, False), (70, False), (5, True)])
def test_places_are_collected_between_offsets(starts: int, late: bool) -> None:
    content, cases = bags(starts=starts, late=late)
    graph = read(content)
    assert not graph.bounded
    compare(graph, content, *cases)
    (outer,) = [each for each in graph.nodes if isinstance(each, Scan)]
    assert outer.count == starts
    inner = next(each for each in outer.body if isinstance(each, Scan))
    assert inner.count == (2 * 4 * starts if late else 4)


def test_nested_loops_append_to_one_tensor() -> None:
    row = [
        node("Gather", "x i", "row"),
        node("Identity", "c", "going_out"),
    ]
    inner = body(
        [
            node("Gather", "row i2", "element"),
            node("Greater", "element zero", "is_good"),
            node("Reshape", "element flat", "piece"),
            chosen(APPENDED),
            node("Identity", "c2", "going"),
        ],
        "going after",
    )
    del inner.input[:]
    inner.input.extend(
        helper.make_tensor_value_info(*each)
        for each in (("i2", INT64, []), ("c2", BOOL, []), ("kept", FLOAT, ["n"]))
    )
    outer = body(
        [*row, helper.make_node("Loop", ["three", "", "kept0"], ["kept1"], body=inner)],
        "going_out kept1",
        ("kept0", FLOAT, ["m"]),
    )
    cases = inputs_of()
    content = model_of(
        cases[0], [loop(outer, "empty")], {"y": 1}, {**CONSTANTS, "empty": np.empty(0, np.float32)}
    )
    agree(content, *cases)


def test_a_loop_over_what_was_selected_has_its_bound() -> None:
    """The number of iterations is computed from an extent."""
    inner = body(
        [
            node("Gather", "places i", "place"),
            node("Gather", "x place", "row"),
            node("Exp", "row", "e"),
            node("Identity", "c", "going"),
        ],
        "going e",
    )
    nodes = [
        node("ReduceSum", "x second", "sums", keepdims=0),
        node("Greater", "sums zero", "good"),
        node("NonZero", "good", "found"),
        node("Squeeze", "found first", "places"),
        node("Shape", "places", "s"),
        node("Squeeze", "s first", "number"),
        helper.make_node("Loop", ["number", ""], ["y"], body=inner),
    ]
    cases = inputs_of()
    agree(model_of(cases[0], nodes, {"y": 2}, {**CONSTANTS, "second": [1]}), *cases)


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_known_number_of_trips_bounds_a_loop_that_may_not_start(trips: int) -> None:
    inner = body(
        [node("Add", "s x", "t"), node("Identity", "c", "going")], "going t", ("s", FLOAT, [2])
    )
    inputs = {"x": np.ones(2, np.float32), "starts": np.array(True)}
    nodes = [helper.make_node("Loop", ["some_trips", "starts", "x"], ["y"], body=inner)]
    content = model_of(inputs, nodes, {"y": 1}, {"some_trips": np.int64(trips)})
    graph = read(content)
    compare(graph, content, inputs, {**inputs, "starts": np.array(False)})


def test_a_tensor_that_grows_and_is_read_is_refused_by_name() -> None:
    read_too = [*ROW, chosen(APPENDED), node("ReduceSum", "kept", "total", keepdims=0)]
    inner = body(read_too, "going after total", KEPT)
    made = helper.make_node("Loop", ["trips", "yes", "none"], ["y", "totals"], body=inner)
    content = model_of(inputs_of()[0], [made], {"y": 2}, CONSTANTS)
    reason = r"operator Loop \('y'\) hands on a tensor with an extent that is computed at run time"
    with pytest.raises(ModelRefused, match=reason):
        read_graph(content, {})
