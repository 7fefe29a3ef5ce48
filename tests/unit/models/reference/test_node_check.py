"""An imported graph is held against ONNX's evaluator, and the operator at fault is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support import onnx_networks as nets
from tuner.models.files.onnx_file import read_model
from tuner.models.from_onnx import reader
from tuner.models.importer import judged
from tuner.models.operators.elementwise import elementwise
from tuner.models.reading import read_graph
from tuner.models.reference.check_inputs import check_inputs
from tuner.models.reference.node_check import verdict_on
from tuner.models.reference.onnx_evaluation import evaluate
from tuner.models.reference.verdict import Right, Unjudged, Verdict, Wrong, verdict_from, verdict_to

Array = np.ndarray[Any, np.dtype[Any]]


def model_of(
    nodes: Sequence[Any],
    shape: Sequence[int] = (2, 3),
    constants: Mapping[str, Array] | None = None,
) -> bytes:
    """From x of that shape to y of the same rank."""
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    content: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    ).SerializeToString()
    return content


def verdict(content: bytes) -> Verdict:
    graph = read_graph(content, {})
    return verdict_on(read_model(content, {}), graph, check_inputs(graph, {}), {})


CHAIN = model_of(
    [
        helper.make_node("Abs", ["x"], ["a"], name="first"),
        helper.make_node("Transpose", ["a"], ["t"], perm=[1, 0]),
        helper.make_node("Exp", ["t"], ["e"], name="second"),
        helper.make_node("Softmax", ["e"], ["y"], name="third"),
    ]
)


def test_a_right_graph_has_its_error_and_outputs() -> None:
    right = verdict(CHAIN)
    assert isinstance(right, Right) and 0 <= right.error < 1e-6
    assert right.outputs[0].shape == (3, 2)


@pytest.mark.parametrize(("operator", "name"), [("Abs", "first"), ("Exp", "second")])
def test_the_first_wrong_operator_is_named(
    operator: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def negated(node: Any) -> Any:
        return elementwise("negated", lambda x: 0 - x, node[0])

    monkeypatch.setitem(reader.OPERATORS, operator, negated)
    wrong = verdict(CHAIN)
    assert isinstance(wrong, Wrong)
    assert "output 'y' is off by" in wrong.message
    assert f"the first wrong operator is {operator} ('{name}'), which is off by" in wrong.message


def test_a_graph_that_is_wrong_as_a_whole_is_told_from_wrong_operators() -> None:
    graph = read_graph(nets.serialized(nets.perceptron(rows=2, sizes=(4, 3), seed=1)), {})
    content = nets.serialized(nets.perceptron(rows=2, sizes=(4, 3), seed=2))
    wrong = verdict_on(read_model(content, {}), graph, check_inputs(graph, {}), {})
    assert isinstance(wrong, Wrong) and "each operator is right by itself" in wrong.message


def test_what_is_undefined_on_both_sides_is_right() -> None:
    content = model_of([helper.make_node("Log", ["x"], ["y"])])
    right = verdict(content)
    assert isinstance(right, Right) and np.isnan(right.outputs[0]).any()


def test_folded_normalisations_are_right() -> None:
    right = verdict(nets.serialized(nets.resnet(size=8, width=8)))
    assert isinstance(right, Right) and right.error < 1e-5


def test_functions_and_branches_are_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of the file is inlined for the search; a branch is named as a whole."""
    function = helper.make_function(
        "own",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["s"]), helper.make_node("Exp", ["s"], ["b"])],
        [helper.make_opsetid("", 18)],
    )
    model = onnx.load_model_from_string(CHAIN)
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.graph.node[0].CopyFrom(helper.make_node("Twice", ["x"], ["a"], domain="own"))
    content = model.SerializeToString()
    assert isinstance(verdict(content), Right)
    monkeypatch.setitem(
        reader.OPERATORS, "Exp", lambda node: elementwise("wrong", lambda x: x + 1, node[0])
    )
    wrong = verdict(content)
    assert isinstance(wrong, Wrong) and "the first wrong operator is Exp" in wrong.message


def test_elements_are_gathered_from_more_than_64_rows() -> None:
    """numpy.choose, which onnx's evaluator calls, takes no more."""
    rng = np.random.default_rng(0)
    ids = rng.integers(-100, 100, (100, 5))
    gather = helper.make_node("GatherElements", ["x", "ids"], ["y"], axis=0)
    content = model_of([gather], (100, 7), {"ids": ids})
    x = rng.standard_normal((100, 7)).astype(np.float32)
    (y,) = evaluate(read_model(content, {}), [x])
    np.testing.assert_array_equal(y, x[ids, np.arange(5)])
    assert isinstance(verdict(content), Right)


def test_the_confined_process_judges_within_its_time() -> None:
    graph = read_graph(CHAIN, {})
    inputs = check_inputs(graph, {})
    assert isinstance(judged(CHAIN, graph, inputs, {}, {}, 60.0), Right)
    late = judged(CHAIN, graph, inputs, {}, {}, 0.01)
    assert isinstance(late, Unjudged) and late.evaluable and "more than 0.01 s" in late.reason


@pytest.mark.parametrize(
    "given",
    [
        Right(error=1e-7, outputs=(np.ones((2, 1), np.float32), np.array(3))),
        Wrong(message="it is"),
        Unjudged(reason="too slow", evaluable=True),
        Unjudged(reason="no such operator", evaluable=False),
    ],
)
def test_verdicts_travel(given: Verdict) -> None:
    back = verdict_from(verdict_to(given))
    if isinstance(given, Right):
        assert isinstance(back, Right) and back.error == given.error
        for sent, came in zip(given.outputs, back.outputs, strict=True):
            np.testing.assert_array_equal(sent, came)
        back, given = replace(back, outputs=()), replace(given, outputs=())
    assert back == given
