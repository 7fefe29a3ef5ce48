"""Operators of sequences: what is read of them is what ONNX's evaluator computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.support.graph_values import graph_outputs
from tuner.models.errors import ModelRefused
from tuner.models.graph import check_graph
from tuner.models.reading import read_graph

X = np.arange(24, dtype=np.float32).reshape(2, 6, 2)


def model_of(nodes: list[Any], **constants: Any) -> Any:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def assert_right(model: Any) -> None:
    (right,) = ReferenceEvaluator(model).run(None, {"x": X})
    graph = read_graph(model.SerializeToString(), {})
    check_graph(graph)
    (got,) = graph_outputs(graph, [X])
    assert got.shape == right.shape
    np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize(
    ("sizes", "attributes"),
    [
        ([1, 3, 2], {"axis": 1}),
        (4, {"axis": 1}),
        (None, {"axis": -2}),
        (None, {"axis": 1, "keepdims": 0}),
    ],
    ids=["sizes", "one size", "single", "without the axis"],
)
@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_part_of_a_split_is_read(sizes: Any, attributes: dict[str, Any], place: int) -> None:
    names = ["x"] if sizes is None else ["x", "sizes"]
    nodes = [
        helper.make_node("SplitToSequence", names, ["parts"], **attributes),
        helper.make_node("Identity", ["parts"], ["same"]),
        helper.make_node("SequenceAt", ["same", "place"], ["y"]),
    ]
    assert_right(model_of(nodes, place=place, **({} if sizes is None else {"sizes": sizes})))


@pytest.mark.parametrize(("axis", "new_axis"), [(1, 0), (-1, 0), (0, 1), (-1, 1)])
def test_a_sequence_is_built_and_joined(axis: int, new_axis: int) -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Abs", ["x"], ["b"]),
        helper.make_node("SequenceEmpty", [], ["none"]),
        helper.make_node("SequenceInsert", ["none", "a"], ["alone"]),
        helper.make_node("SequenceInsert", ["alone", "x", "first"], ["pair"]),
        helper.make_node("SequenceInsert", ["pair", "b", "last"], ["three"]),
        helper.make_node("SequenceErase", ["three", "first"], ["two"]),
        helper.make_node("ConcatFromSequence", ["two"], ["y"], axis=axis, new_axis=new_axis),
    ]
    assert_right(model_of(nodes, first=0, last=-1))


def test_the_length_of_a_sequence_is_known() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x", "x"], ["three"]),
        helper.make_node("SequenceLength", ["three"], ["n"]),
        helper.make_node("CastLike", ["n", "x"], ["real"]),
        helper.make_node("Mul", ["x", "real"], ["y"]),
    ]
    assert_right(model_of(nodes))


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([("SequenceAt", ["s", "far"], ["y"])], "position 5 of a sequence of 2 tensors"),
        ([("SequenceMap", ["s"], ["y"])], "only operators of sequences do"),
        ([("Identity", ["s"], ["y"])], "output 'y' is a sequence; export its tensors"),
    ],
)
def test_what_cannot_be_read_is_refused(nodes: list[Any], reason: str) -> None:
    made = [helper.make_node(op, i, o) for op, i, o in nodes]
    if made[0].op_type == "SequenceMap":
        body = helper.make_graph(
            [helper.make_node("Neg", ["e"], ["f"])],
            "body",
            [helper.make_tensor_value_info("e", TensorProto.FLOAT, None)],
            [helper.make_tensor_value_info("f", TensorProto.FLOAT, None)],
        )
        made[0].attribute.append(helper.make_attribute("body", body))
    model = model_of([helper.make_node("SequenceConstruct", ["x", "x"], ["s"]), *made], far=5)
    if made[0].op_type != "SequenceAt":
        kind = helper.make_sequence_type_proto(
            helper.make_tensor_type_proto(TensorProto.FLOAT, None)
        )
        model.graph.output[0].type.CopyFrom(kind)
    with pytest.raises(ModelRefused, match=reason):
        read_graph(model.SerializeToString(), {})
