"""Branches whose sides give tensors of several extents: against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, ValueInfoProto, helper

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
from tuner.models.nodes import Branch
from tuner.models.reading import read_graph
from tuner.workload.expression import Expression

X = np.array([[1, -2, 3], [0, 4, 0], [-4, 5, 6], [7, 8, -9]], np.float32)
CONSTANTS = {
    "first": [0],
    "one": [1],
    "two": [2],
    "three": [3],
    "flat": [-1],
    "zero": np.float32(0),
    "nothing": np.empty((0, 3), np.float32),
    "row": np.array([[1, 2, 3]], np.float32),
    "bytes": np.array([1, 2], np.int8),
    "byte": np.array([3], np.int8),
    "flag": np.array([True]),
    "always": np.array(True),
    "last": -1,
    "number": np.float32(7),
    "numbers": np.array([8], np.float32),
}


def side(nodes: Sequence[Any], *results: str) -> Any:
    outputs = [ValueInfoProto(name=name) for name in results]
    return helper.make_graph(list(nodes), "side", [], outputs)


def choice(then: Any, other: Any, results: str = "y", condition: str = "c") -> Any:
    return node("If", condition, results, then_branch=then, else_branch=other)


def copied(name: str, result: str = "a") -> Any:
    return side([node("Identity", name, result)], result)


def copies(first: str, second: str) -> list[Any]:
    return [node("Identity", first, "q"), node("Identity", second, "r")]


HALF = side([node("Slice", "x first two first", "s"), node("Exp", "s", "h")], "h")
POSITIVE = [
    node("Greater", "x zero", "g"),
    node("NonZero", "g", "places"),
    node("Transpose", "places", "indices"),
    node("GatherND", "x indices", "values"),
]
CASES: Mapping[str, Sequence[Any]] = {
    "fewer rows": [choice(HALF, side([node("Neg", "x", "n")], "n"))],
    "no rows": [choice(copied("nothing"), HALF)],
    "constants": [choice(copied("nothing"), copied("row"))],
    "columns too": [
        choice(side([node("Slice", "x first one one", "s"), node("Exp", "s", "e")], "e"), HALF)
    ],
    "selected or none": [
        choice(side(POSITIVE, "values"), side([node("Slice", "numbers first first", "v")], "v"))
    ],
    "selected or all": [
        choice(side(POSITIVE, "values"), side([node("Reshape", "x flat", "v")], "v"))
    ],
    "integers of 8 bits": [choice(copied("bytes"), copied("byte"))],
    "conditions": [
        choice(
            side([node("Reshape", "x flat", "f"), node("Greater", "f zero", "b")], "b"),
            copied("flag"),
        )
    ],
    "one of three": [
        choice(HALF, side([choice(copied("nothing"), copied("row", "b"), "r", "d")], "r"))
    ],
    "several results": [
        choice(
            side([node("Exp", "x", "p"), *copies("row", "number")], "p", "q", "r"),
            side([node("Neg", "x", "p"), *copies("x", "numbers")], "p", "q", "r"),
            "same y several",
        ),
        node("Add", "same several", "z"),
    ],
    "a view": [
        choice(HALF, side([node("Slice", "x one three first", "s")], "s"), "r"),
        choice(copied("r"), side([node("Slice", "x one two first", "t")], "t"), "y", "d"),
    ],
    "followed": [
        choice(HALF, side([node("Neg", "x", "n")], "n"), "t"),
        node("ReduceSum", "t first", "sums", keepdims=0),
        node("Mul", "t sums", "y"),
    ],
}  # fmt: skip


def inputs_of(x: Array) -> Sequence[Mapping[str, Array]]:
    flags = [(c, d) for c in (True, False) for d in (True, False)]
    return [{"x": x, "c": np.array(c), "d": np.array(d)} for c, d in flags]


@pytest.mark.parametrize("name", CASES)
def test_a_result_has_the_extents_of_the_side_that_is_chosen(name: str) -> None:
    outputs = {"y": 0} | ({"z": 2} if name == "several results" else {})
    cases = inputs_of(X)
    content = model_of(cases[0], CASES[name], outputs, CONSTANTS)
    agree(content, *cases, *inputs_of(-np.abs(X)))


def test_equal_extents_are_known() -> None:
    """Also where one side cuts what the other one has by itself."""
    sides = HALF, side([node("Slice", "x one three first", "s"), node("Neg", "s", "n")], "n")
    cases = inputs_of(X)
    content = model_of(cases[0], [choice(*sides)], {"y": 2}, CONSTANTS)
    graph = read(content)
    assert not graph.bounded and graph.tensor(graph.outputs[0]).shape == (2, 3)
    compare(graph, content, *cases)


NORM = node("ReduceL2", "r", "n", keepdims=0)
FLAT = side([node("Reshape", "x flat", "f")], "f")
PAIR = side([node("Neg", "x", "m"), node("SequenceConstruct", "x m", "s")], "s")
ALONE = side([node("SequenceConstruct", "x", "s")], "s")
# Results that no tensor stands for; the number of dimensions of what is made of them.
APART: Mapping[str, tuple[int, Sequence[Any]]] = {
    "ranks": (0, [choice(copied("x"), FLAT, "r"), node("ReduceMax", "r", "y", keepdims=0)]),
    "ranks and counts": (
        0,
        [choice(copied("x"), side(POSITIVE, "values"), "r"), node("ReduceSum", "r", keepdims=0)],
    ),
    "ranks twice": (
        0,
        [
            choice(copied("x"), FLAT, "r"),
            choice(copied("r"), copied("numbers"), "t", "d"),
            node("ReduceSum", "t", "sum", keepdims=0),
            node("ReduceMax", "r", "most", keepdims=0),
            node("Sub", "sum most"),
        ],
    ),
    "ranks of two that meet": (
        0,
        [
            choice(copied("x"), FLAT, "r"),
            choice(copied("x"), copied("numbers"), "t", "d"),
            node("ReduceMax", "r", "most", keepdims=0),
            node("ReduceSum", "t", "sum", keepdims=0),
            node("Sub", "sum most"),
        ],
    ),
    "ranks on a side": (
        0,
        [
            choice(
                side([choice(copied("x"), FLAT, "r", "d"), NORM], "n"),
                copied("numbers"),
                "q",
            ),
            node("ReduceMax", "q", keepdims=0),
        ],
    ),
    "sequences": (2, [choice(PAIR, ALONE, "q"), node("ConcatFromSequence", "q", axis=0)]),
    "parts of sequences": (2, [choice(PAIR, ALONE, "q"), node("SequenceAt", "q last")]),
    "a sequence of a known side": (
        2, [choice(PAIR, ALONE, "q", "always"), node("SequenceAt", "q last")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_what_depends_on_unlike_results_is_computed_on_each_side(name: str) -> None:
    rank, nodes = APART[name]
    cases = inputs_of(X)
    nodes = [*nodes, node("Exp", "x", "z")]
    content = model_of(cases[0], nodes, {"y": rank, "z": 2}, CONSTANTS)
    graph = read(content)
    assert not graph.fixed and not graph.refusals
    compare(graph, content, *cases, *inputs_of(-np.abs(X)))


def test_what_does_not_depend_on_unlike_results_is_computed_once() -> None:
    nodes = [
        choice(copied("x"), FLAT, "r"),
        node("Exp", "x", "e"),
        node("ReduceSum", "e", "sum", keepdims=0),
        node("ReduceMax", "r", "most", keepdims=0),
        node("Add", "sum most"),
    ]
    graph = read(model_of(inputs_of(X)[0], nodes, {"y": 0}, CONSTANTS))
    first, last = graph.nodes
    assert isinstance(first, Expression) and first.name == "reducesum"
    assert isinstance(last, Branch)
    names = {each.name for part in (last.then, last.other) for each in part.nodes}
    assert names == {"reducemax", "add"}


def test_iterations_choose_among_numbers_of_dimensions() -> None:
    body = helper.make_graph(
        [
            node("Less", "i two_trips", "early"),
            choice(copied("x"), FLAT, "r", "early"),
            node("ReduceMax", "r", "most", keepdims=0),
            node("Mul", "s most", "next"),
            node("Identity", "on", "goes_on"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", FLOAT, []),
        ],
        [ValueInfoProto(name=name) for name in ("goes_on", "next")],
    )
    content = model_of(
        inputs_of(X)[0],
        [node("Loop", "trips c number", body=body)],
        {"y": 0},
        {**CONSTANTS, "trips": 4, "two_trips": 2},
    )
    compare(read(content), content, *inputs_of(X))


def test_a_side_that_does_not_fit_what_follows_is_left_out() -> None:
    nodes = [choice(copied("x"), FLAT, "r"), node("Transpose", "r", perm=[1, 0])]
    content = model_of(inputs_of(X)[0], nodes, {"y": 2}, CONSTANTS)
    graph = read(content)
    (refusal,) = graph.refusals
    assert "operator Transpose ('y')" in refusal
    compare(graph, content, *(each for each in inputs_of(X) if each["c"]))


def test_sequences_of_branches_inside_of_branches_are_refused() -> None:
    inner = side([choice(PAIR, ALONE, "q", "d")], "q")
    nodes = [choice(inner, ALONE, "q"), node("SequenceAt", "q last")]
    content = model_of(inputs_of(X)[0], nodes, {"y": 2}, CONSTANTS)
    with pytest.raises(ModelRefused, match=r"operator If \('q'\) .* sides give sequences"):
        read_graph(content, {})


def test_many_unlike_branches_behind_each_other_are_refused() -> None:
    """Ways through them double with each."""
    names = ["x", *(f"r{number}" for number in range(1, 7))]
    steps = []
    for before, after in pairwise(names):
        longer = side([node("Unsqueeze", f"{before} first", "u")], "u")
        steps.append(choice(copied(before), longer, after))
    content = model_of(
        inputs_of(X)[0], [*steps, node("ReduceMax", names[-1], keepdims=0)], {"y": 0}, CONSTANTS
    )
    with pytest.raises(ModelRefused, match=r"operator If \('r5'\) depends on 4 others"):
        read_graph(content, {})


def test_outputs_with_several_numbers_of_dimensions_are_refused() -> None:
    sides = HALF, copied("numbers")
    content = model_of(inputs_of(X)[0], [choice(*sides)], {"y": 2}, CONSTANTS)
    reason = r"operator If \('y'\) .* float32\[2, 3\] on one side and float32\[1\] on the other"
    with pytest.raises(ModelRefused, match=reason):
        read_graph(content, {})


def test_a_side_that_cannot_be_read_leaves_the_other_its_extents() -> None:
    random = side([node("RandomNormalLike", "x", "m"), node("Reshape", "m flat", "r")], "r")
    sides = side(POSITIVE, "values"), random
    graph = read(model_of(inputs_of(X)[0], [choice(*sides)], {"y": 1}, CONSTANTS))
    (refusal,) = graph.refusals
    assert "RandomNormalLike" in refusal and {*graph.bounded} == {"y"}
