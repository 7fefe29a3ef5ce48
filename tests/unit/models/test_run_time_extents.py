"""Results whose extents depend on values, up to a bound: against NumPy and ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.support.graph_values import graph_outputs
from tests.unit.models.bounded_models import (
    FLOAT,
    INT64,
    Array,
    agree,
    model_of,
    node,
    outputs_of,
    read,
)
from tuner.models.errors import ModelRefused
from tuner.models.reading import read_graph
from tuner.models.reference.bounded_outputs import filled
from tuner.workload.bounded import BoundedExtents

SMALL = settings(max_examples=25, deadline=None)


# --- selection, against NumPy


@SMALL
@given(
    arrays(np.int32, st.sampled_from([(1,), (7,), (3, 4), (2, 1, 5)]), elements=st.integers(-1, 1))
)
def test_nonzero_gives_the_indices_in_order(x: Array) -> None:
    graph = read(model_of({"x": x}, [node("NonZero", "x")], {"y": 2}))
    (got,) = outputs_of(graph, {"x": x})
    np.testing.assert_array_equal(got, np.stack(np.nonzero(x)), strict=True)


def test_the_rows_behind_the_count_are_zeros() -> None:
    x = np.array([0, 3, 0, 1, 0], np.int32)
    graph = read(model_of({"x": x}, [node("NonZero", "x")], {"y": 2}))
    indices, extent = graph_outputs(graph, [x])
    assert graph.labels == ("x", "y", "y.extent")
    assert graph.bounded == {"y": BoundedExtents(axes=(1,), extents="y.extent")}
    assert indices.tolist() == [[1, 3, 0, 0, 0]] and extent.tolist() == [2]
    for whole, again in zip((indices, extent), filled(graph, [indices[:, :2]]), strict=True):
        np.testing.assert_array_equal(whole, again, strict=True)


@SMALL
@given(
    arrays(np.float32, (4, 5), elements=st.sampled_from([-1.5, 0.0, 2.0])),
    arrays(np.bool_, st.integers(1, 5)),
)
def test_compress_takes_the_slices_where_a_condition_holds(x: Array, condition: Array) -> None:
    inputs = {"x": x, "condition": condition}
    graph = read(model_of(inputs, [node("Compress", "x condition", axis=1)], {"y": 2}))
    (got,) = outputs_of(graph, inputs)
    np.testing.assert_array_equal(got, np.compress(condition, x, 1), strict=True)


@SMALL
@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 8), st.integers(1, 2)),
        elements=st.sampled_from([-1.0, 0.0, 2.0]),
    ),
    st.booleans(),
)
def test_unique_rows_are_numpys(x: Array, flat: bool) -> None:
    attributes = {} if flat else {"axis": 0}
    content = model_of(
        {"x": x},
        [node("Unique", "x", "y places inverse repeats", **attributes)],
        {"y": 1, "places": 1, "inverse": 1, "repeats": 1},
    )
    got = outputs_of(read(content), {"x": x})
    right = np.unique(x, True, True, True, axis=None if flat else 0)
    for array, other in zip(got, right, strict=True):
        np.testing.assert_array_equal(array, other.reshape(array.shape))


@SMALL
@given(st.integers(-7, 7), st.integers(-7, 7), st.sampled_from([-3, -1, 1, 2]), st.booleans())
def test_slices_by_numbers_of_run_time_are_pythons(
    start: int, end: int, step: int, is_late: bool
) -> None:
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    inputs = {"x": x, "start": np.array([start]), "end": np.array([end])}
    constants = {"axes": [0]} if is_late else {"axes": [0], "steps": [step]}
    if is_late:
        inputs["steps"] = np.array([step])
    content = model_of(inputs, [node("Slice", "x start end axes steps")], {"y": 2}, constants)
    (got,) = outputs_of(read(content), inputs)
    np.testing.assert_array_equal(got, x[start:end:step], strict=True)


@SMALL
@given(
    arrays(np.float32, (2, 3, 9), elements=st.sampled_from([0.125, 0.25, 0.5, 0.75, 0.875])),
    arrays(np.float32, (2, 9, 4), elements=st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0])),
    st.integers(1, 12),
    st.booleans(),
)
def test_suppression_is_onnx_runtimes(
    scores: Array, boxes: Array, most: int, centered: bool
) -> None:
    inputs = {"boxes": boxes, "scores": scores, "most": np.array([most])}
    content = model_of(
        inputs,
        [node("NonMaxSuppression", "boxes scores most iou least", center_point_box=int(centered))],
        {"y": 2},
        {"iou": np.float32(0.3), "least": np.float32(0.2)},
    )
    agree(content, inputs)


# --- what may follow


X = np.array([[1, -2, 3], [0, 0, 0], [-4, 5, 6], [7, 8, -9]], np.float32)
FIRST = [
    node("ReduceSum", "x one", "sums", keepdims=0),
    node("Greater", "sums zero", "is_good"),
    node("NonZero", "is_good", "found"),
    node("Squeeze", "found first", "rows"),
    node("Gather", "x rows", "kept", axis=0),  # [n, 3]
]
CONSTANTS = {
    "one": [1],
    "first": [0],
    "zero": np.float32(0),
    "two": [2],
    "flat": [-1],
    "pairs": [-1, 3, 1],
    "columns": np.array([[1, 2, 0, 1], [3, 4, 1, 0], [5, 6, 0, 0]], np.float32),
    "last": [-1],
    "ones": np.ones((2, 3), np.float32),
    "minus": np.int64(-1),
    "big": [2**62],
}
FOLLOWERS = {
    "add": [node("Add", "kept kept")],
    "transpose": [node("Transpose", "kept")],
    "unsqueeze": [node("Unsqueeze", "kept one")],
    "reshape": [node("Reshape", "kept flat")],
    "reshape with units": [node("Reshape", "kept pairs")],
    "sum over rows": [node("ReduceSum", "kept first", keepdims=0)],
    "mean over rows": [node("Add", "kept kept", "t"), node("ReduceMean", "t first")],
    "greatest of columns": [node("ReduceMax", "kept one")],
    "product": [node("MatMul", "kept columns")],
    "gram": [node("Transpose", "kept", "t"), node("MatMul", "t kept")],
    "gemm": [node("Gemm", "kept columns")],
    "softmax of rows": [node("Softmax", "kept", axis=1)],
    "softmax over rows": [node("Softmax", "kept", axis=0)],
    "prefix sums": [node("CumSum", "kept zeroth", reverse=1)],
    "concatenation": [node("Concat", "kept kept", axis=1)],
    "joined rows": [node("Concat", "kept ones kept", axis=0)],
    "columns": [node("Slice", "kept one two one")],
    "first rows": [node("Slice", "kept first two first")],
    "last rows": [node("Slice", "kept last big first")],
    "all rows but the last": [node("Slice", "kept first last first")],
    "twice selected": [
        node("Slice", "kept first one one", "column"),
        node("Squeeze", "column one", "values"),
        node("Greater", "values zero", "again"),
        node("NonZero", "again", "inner"),
        node("Squeeze", "inner first", "places"),
        node("Gather", "kept places", axis=0),
    ],
    "compressed": [
        node("Squeeze", "column one", "values"),
        node("Greater", "values zero", "again"),
        node("Compress", "kept again", axis=0),
    ],
    "sizes": [node("Shape", "kept", "s"), node("Size", "kept", "n"), node("Add", "s n")],
    "zeros": [node("Shape", "kept", "s"), node("ConstantOfShape", "s")],
    "numbered": [
        node("Shape", "kept", "s"),
        node("Gather", "s index", "n", axis=0),
        node("Range", "index n unit", "numbers"),
        node("Unsqueeze", "numbers one", "t"),
        node("Cast", "t", "u", to=FLOAT),
        node("Add", "u kept"),
    ],
    "expanded": [
        node("Shape", "kept", "s"),
        node("Slice", "ones first one first", "row"),
        node("Expand", "row s"),
    ],
    "shaped by itself": [
        node("Shape", "kept", "s"),
        node("Slice", "s first one", "n"),
        node("Concat", "n flat", "target", axis=0),
        node("Unsqueeze", "kept two", "t"),
        node("Reshape", "t target"),
    ],
    "best rows": [
        node("ReduceSum", "kept one", "t", keepdims=0),
        node("Shape", "t", "n"),
        node("Concat", "n two", "sizes", axis=0),
        node("ReduceMin", "sizes", "k"),
        node("TopK", "t k", "best y"),
    ],
    "one hot": [node("OneHot", "rows depth values")],
    "picked": [node("Unsqueeze", "rows one", "t"), node("GatherND", "x t")],
    "picked of a selection": [
        node("Slice", "kept first one one", "column"),
        node("Squeeze", "column one", "t"),
        node("Greater", "t zero", "u"),
        node("NonZero", "u", "places"),
        node("Transpose", "places", "indices"),
        node("Shape", "kept", "s"),
        node("Gather", "s index", "n", axis=0),
        node("Sub", "indices n", "back"),
        node("GatherND", "kept back"),
    ],
    "written at places": [
        node("Unsqueeze", "rows one", "t"),
        node("Add", "kept kept", "u"),
        node("ScatterND", "x t u"),
    ],
    "added at places": [
        node("Sub", "rows rows", "t0"),
        node("Unsqueeze", "t0 one", "t"),
        node("ScatterND", "x t kept", reduction="add"),
    ],
    "written where a mask is true": [  # as torch.onnx.export writes masked_scatter
        node("Greater", "x zero", "mask"),
        node("NonZero", "mask", "t"),
        node("Transpose", "t", "places", perm=[1, 0]),
        node("Shape", "places", "s"),
        node("Gather", "s first", "n", axis=0),
        node("Reshape", "image flat", "source"),
        node("Slice", "source first n first", "u"),
        node("ScatterND", "x places u"),
    ],
    "written from the end on": [
        node("Shape", "kept", "s"),
        node("Gather", "s index", "n", axis=0),
        node("Range", "index n unit", "numbers"),
        node("Sub", "minus numbers", "places"),
        node("Unsqueeze", "places one", "t"),
        node("Neg", "kept", "u"),
        node("ScatterND", "kept t u"),
    ],
    "elements of each row": [
        node("Slice", "kept first one one", "column"),
        node("Greater", "column zero", "t"),
        node("Cast", "t", "u", to=INT64),
        node("ScatterElements", "kept u column", axis=1),
    ],
    "sampled": [
        node("Slice", "kept first two one", "u"),
        node("Tanh", "u", "t"),
        node("Unsqueeze", "t both", "grid"),
        node("GridSample", "image grid"),
    ],
}
COLUMN = node("Slice", "kept first one one", "column")
MORE = {
    "zeroth": np.int64(0),
    "index": np.int64(0),
    "unit": np.int64(1),
    "depth": np.int64(4),
    "values": np.array([0, 1], np.float32),
    "both": [0, 1],
    "image": np.arange(18, dtype=np.float32).reshape(1, 2, 3, 3) - 4,
}


@pytest.mark.parametrize("name", FOLLOWERS)
def test_operators_that_follow_a_selection(name: str) -> None:
    nodes = [*FIRST, *([COLUMN] if name == "compressed" else []), *FOLLOWERS[name]]
    constants = {**CONSTANTS, **MORE}
    if any("values" in made.output for made in nodes):
        del constants["values"]
    content = model_of({"x": X}, nodes, {"y": 0, "kept": 2}, constants)
    # One row, two, and all of them. A mean of none is no number, and ONNX Runtime refuses
    # to give none of them another shape.
    cases = [{"x": X}, {"x": np.abs(X) + 1}, {"x": X * [[-1], [1], [1], [1]]}]
    if name not in ("mean over rows", "best rows", "shaped by itself"):
        cases.append({"x": np.zeros_like(X)})
    agree(content, *({"x": case["x"].astype(np.float32)} for case in cases))


REFUSED = {
    "softmax of all": [node("Flatten", "kept", "t", axis=0), node("Softmax", "t")],
    "reshape": [node("Reshape", "kept square")],
    "two counts": [
        node("Less", "sums zero", "is_bad"),
        node("NonZero", "is_bad", "others"),
        node("Squeeze", "others first", "bad"),
        node("Gather", "x bad", "left", axis=0),
        node("Add", "left kept"),
    ],
    "resize": [node("Unsqueeze", "kept first", "t"), node("Det", "t")],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_follow_is_refused_with_the_way_out(name: str) -> None:
    constants = {**CONSTANTS, "square": [3, 3]}
    content = model_of({"x": X}, [*FIRST, *REFUSED[name]], {"y": 2}, constants)
    with pytest.raises(ModelRefused, match=r"operator \w+ .*--inputs FILE.npz"):
        read_graph(content, {})
    if name == "two counts":
        x = np.where(X > 0, X, np.float32(0))
        x[:2] *= -1
        graph = read_graph(content, {}, {"x": x})
        assert graph.fixed
        np.testing.assert_array_equal(graph_outputs(graph, [x])[0], x[:1] + x[2:])
