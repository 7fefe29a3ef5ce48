"""Results whose extents depend on values, up to a bound: against NumPy and ONNX Runtime."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import TensorProto, helper, numpy_helper

from tests.support.graph_values import graph_outputs
from tests.support.model_kernels import compiled
from tests.support.model_libraries import exported
from tuner.export.manifest import read_manifest
from tuner.models.errors import ModelRefused
from tuner.models.graph import Graph
from tuner.models.graph_archive import packed, unpacked
from tuner.models.reading import read_graph
from tuner.models.reference.bounded_outputs import cut, filled
from tuner.models.workloads import workloads_of
from tuner.workload.bounded import BoundedExtents

Array = np.ndarray[Any, np.dtype[Any]]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
TYPES = {"float32": FLOAT, "int64": INT64, "bool": TensorProto.BOOL, "int32": TensorProto.INT32}
SMALL = settings(max_examples=25, deadline=None)


def model_of(
    inputs: Mapping[str, Array],
    nodes: Sequence[Any],
    outputs: Mapping[str, int],
    constants: Mapping[str, Any] | None = None,
) -> bytes:
    """A model whose outputs have a rank and open extents; dtypes are inferred."""
    graph = helper.make_graph(
        list(nodes),
        "net",
        [
            helper.make_tensor_value_info(name, TYPES[array.dtype.name], array.shape)
            for name, array in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    content: bytes = helper.make_model(
        graph, opset_imports=opsets, ir_version=8
    ).SerializeToString()
    return content


def node(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def read(content: bytes) -> Graph:
    """The graph, sent between processes and checked."""
    return unpacked(packed(read_graph(content, {})))


def outputs_of(graph: Graph, inputs: Mapping[str, Array]) -> list[Array]:
    with np.errstate(all="ignore"):
        return cut(graph, graph_outputs(graph, [*inputs.values()]))


def agree(content: bytes, *cases: Mapping[str, Array]) -> Graph:
    """Checks that a graph with bounded extents gives what ONNX Runtime does, shapes included."""
    graph = read(content)
    assert graph.bounded and not graph.fixed
    compare(graph, content, *cases)
    return graph


def compare(graph: Graph, content: bytes, *cases: Mapping[str, Array]) -> None:
    session = onnxruntime.InferenceSession(content)
    for inputs in cases:
        right = session.run(None, dict(inputs))
        for got, array in zip(outputs_of(graph, inputs), right, strict=True):
            assert got.dtype == array.dtype
            np.testing.assert_allclose(got, array, 1e-5, 1e-6, strict=True)


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


# --- a detection head


REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp", "ReduceProd")


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions_along_axes_of_run_time_keep_the_dimensions(op: str) -> None:
    draw = np.random.default_rng(5)
    x = draw.standard_normal((3, 1, 4)).astype(np.float32)
    content = model_of({"x": x, "axes": np.zeros(2, np.int64)}, [node(op, "x axes")], {"y": FLOAT})
    agree(content, *({"x": x, "axes": np.array(axes)} for axes in ([0, 2], [-1, 1], [1, 0])))


def test_dimensions_of_run_time_are_not_dropped() -> None:
    inputs: dict[str, Array] = {
        "x": np.zeros((3, 4), np.float32),
        "axes": np.zeros(1, np.int64),
    }
    with pytest.raises(ModelRefused, match="computes its input 1 at run time"):
        read(model_of(inputs, [node("ReduceSum", "x axes", keepdims=0)], {"y": FLOAT}))


@pytest.mark.parametrize("options", [{}, {"exclusive": 1}, {"reverse": 1}])
def test_prefixes_along_an_axis_of_run_time(options: dict[str, Any]) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
    content = model_of(
        {"x": x, "axis": np.array(0)}, [node("CumSum", "x axis", **options)], {"y": FLOAT}
    )
    cases = [{"x": x, "axis": np.array(axis)} for axis in (0, 1, -1, -2)]
    compare(read(content), content, *cases)


def detector(boxes: int, classes: int) -> bytes:
    """Boxes by their centres, an objectness and scores of classes; as exports of YOLO end."""
    pred = np.zeros((1, boxes, 5 + classes), np.float32)
    return model_of(
        {"pred": pred},
        [
            node("Slice", "pred s0 s4 s2", "box"),
            node("Slice", "pred s4 s5 s2", "object"),
            node("Slice", "pred s5 big s2", "class"),
            node("Mul", "object class", "confidence"),
            node("Transpose", "confidence", "scores", perm=[0, 2, 1]),
            node("NonMaxSuppression", "box scores s5 iou least", "sel", center_point_box=1),
            node("Gather", "sel s2", "third", axis=1),
            node("Squeeze", "third s1", "chosen"),
            node("Gather", "pred zero", "image", axis=0),
            node("Gather", "image chosen", "rows", axis=0),
            node("Slice", "rows s0 s4 s1", "boxes"),
            node("GatherND", "scores sel", "score"),
            node("Gather", "sel unit", "label", axis=1),
            node("Shape", "score", "number"),
        ],
        {"boxes": 2, "score": 1, "label": 1, "number": 1},
        {
            **{f"s{number}": [number] for number in (0, 1, 2, 4, 5)},
            "big": [2**31],
            "iou": np.array([0.45], np.float32),
            "least": np.array([0.25], np.float32),
            "zero": np.int64(0),
            "unit": np.int64(1),
        },
    )


def detections(boxes: int, classes: int) -> list[Array]:
    """Inputs of which some boxes, none, all, and one a class are chosen."""
    some, none, each, same = (
        np.random.default_rng(n).random((1, boxes, 5 + classes)).astype(np.float32)
        for n in range(4)
    )
    some[..., :2] *= 8
    none[..., 4] = 0
    each[..., 0] += 9 * np.arange(boxes)
    each[..., 4:] = each[..., 4:] * 0.25 + 0.75
    same[..., :4] = 1
    return [some, none, each, same]


def test_a_detection_head_is_right_for_any_number_of_boxes() -> None:
    graph = agree(detector(20, 2), *({"pred": pred} for pred in detections(20, 2)))
    assert graph.bounded["boxes"] == BoundedExtents(axes=(0,), extents="boxes.extent")
    assert graph.tensor(graph.outputs[0]).shape == (10, 4)
    assert not graph.refusals


def test_its_library_gives_the_boxes_that_there_are(tmp_path: Path) -> None:
    """By default schedules: the Python loader cuts, `out` and C get all, the example runs."""
    content = detector(12, 2)
    graph, out = read(content), tmp_path / "out"
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    module = exported(graph, kernels, out, "detector")
    session = onnxruntime.InferenceSession(content)
    for pred in detections(12, 2):
        right = session.run(None, {"pred": pred})
        got = module.run_detector(pred)
        assert len(got) == 4
        for array, other in zip(got, right, strict=True):
            np.testing.assert_allclose(array, other, 1e-6, strict=True)
    (function,) = json.loads((out / "manifest.json").read_text())["functions"]
    bounded = {a["name"]: a["bounded"] for a in function["arguments"] if "bounded" in a}
    assert bounded["boxes"] == {"axes": [0], "extents": "boxes_extent"}
    whole = [
        module.aligned_empty(argument.shape, argument.dtype)
        for argument in module.run_detector.signature.outputs
    ]
    module.run_detector(detections(12, 2)[3], out=whole)
    assert whole[0].shape == (10, 4) and not whole[0][2:].any() and whole[4].tolist() == [2]
    assert (
        "only as many elements as out_boxes_extent says" in (out / "include/detector.h").read_text()
    )
    assert read_manifest(out).functions == (function,)
    subprocess.run([sys.executable, "example.py"], cwd=out / "examples", check=True)
