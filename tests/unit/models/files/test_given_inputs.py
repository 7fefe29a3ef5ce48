"""Values of inputs that a user gives: what a file of them must be, the shapes they set,
and inputs that are fixed because their value decides a shape."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.support.graph_values import graph_outputs
from tuner.models.errors import ModelRefused
from tuner.models.files.input_values import read_values
from tuner.models.graph_archive import packed, unpacked
from tuner.models.importer import import_model, reference_outputs
from tuner.models.reading import read_graph
from tuner.models.reference.check_inputs import check_inputs

Array = np.ndarray[Any, np.dtype[Any]]
Declared = Mapping[str, tuple[int, Sequence[int | str | None]]]
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def model_of(
    inputs: Declared,
    nodes: Sequence[Any],
    constants: Mapping[str, Array] | None = None,
    rank: int = 2,
) -> bytes:
    """A model with the output y, whose extents are left open."""
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info(name, *declared) for name, declared in inputs.items()],
        [helper.make_tensor_value_info("y", FLOAT, [None] * rank)],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    content: bytes = helper.make_model(
        graph, opset_imports=opsets, ir_version=8
    ).SerializeToString()
    return content


def node(op: str, inputs: Sequence[str], output: str = "y", **attributes: Any) -> Any:
    return helper.make_node(op, inputs, [output], **attributes)


RESHAPED = model_of(
    {"x": (FLOAT, [2, 6]), "size": (INT64, [2]), "bias": (FLOAT, [1])},
    [
        node("Add", ["x", "bias"], "sum"),
        node("Cast", ["size"], "small", to=TensorProto.INT32),
        node("Cast", ["small"], "wide", to=INT64),
        node("Reshape", ["sum", "wide"]),
    ],
)


def says(content: bytes, values: Mapping[str, Array], **shapes: int) -> str:
    with pytest.raises(ModelRefused) as refused:
        read_graph(content, shapes, values)
    return str(refused.value)


# --- the file


def test_a_file_gives_arrays_by_name(tmp_path: Path) -> None:
    x, mask = np.arange(6, dtype=np.float32).reshape(2, 3).T, np.array(True)
    np.savez(tmp_path / "a.npz", x=x, mask=mask)
    np.savez_compressed(tmp_path / "b.npz", x=x, mask=mask)
    for name in ("a.npz", "b.npz"):
        values = read_values(tmp_path / name)
        assert set(values) == {"x", "mask"} and values["mask"].shape == ()
        np.testing.assert_array_equal(values["x"], x)
        assert values["x"].flags.c_contiguous


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "good.npz", x=np.arange(4096, dtype=np.float32))
    good = (tmp_path / "good.npz").read_bytes()
    np.savez(tmp_path / "pickle.npz", x=np.array([{}], dtype=object))
    (tmp_path / "short.npz").write_bytes(good[:-200])
    (tmp_path / "flipped.npz").write_bytes(good[:4000] + bytes([good[4000] ^ 1]) + good[4001:])
    (tmp_path / "text.npz").write_bytes(b"no archive")
    cases = {
        "missing.npz": "is no file",
        "text.npz": "is no .npz file",
        "short.npz": "is no .npz file",
        "flipped.npz": "array 'x' is damaged",
        "pickle.npz": "array 'x' holds Python objects",
    }
    for name, words in cases.items():
        with pytest.raises(ModelRefused, match=words) as refused:
            read_values(tmp_path / name)
        assert str(tmp_path / name) in str(refused.value)


def test_damaged_files_are_refused_or_give_arrays(tmp_path: Path) -> None:
    buffer, path, rng = io.BytesIO(), tmp_path / "damaged.npz", np.random.default_rng(3)
    np.savez(buffer, x=np.arange(12, dtype=np.float32), size=np.array([3, 4]))
    refused = 0
    for _ in range(300):
        content = bytearray(buffer.getvalue())
        for place in rng.integers(0, len(content), 3):
            content[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
        try:
            assert all(isinstance(array, np.ndarray) for array in read_values(path).values())
        except ModelRefused:
            refused += 1
    assert refused > 100


# --- what fits the model


def test_values_that_do_not_fit_are_refused() -> None:
    size = np.array([3, 4])
    assert "'z', which is no input of the model; its inputs are 'x', 'size', 'bias'" in says(
        RESHAPED, {"z": size}
    )
    assert "'x' as float64; the model takes float32" in says(RESHAPED, {"x": np.zeros((2, 6))})
    assert "'x' the shape 2x5; the file gives it the shape 2x6" in says(
        RESHAPED, {"x": np.zeros((2, 5), np.float32)}
    )


def test_values_set_the_shapes_that_the_file_leaves_open() -> None:
    content = model_of(
        {"x": (FLOAT, ["rows", "width"]), "z": (FLOAT, ["rows", "width"])},
        [node("Add", ["x", "z"])],
    )
    x = np.ones((3, 5), np.float32)
    assert [tensor.shape for tensor in read_graph(content, {}, {"x": x}).inputs] == [(3, 5)] * 2
    assert read_graph(content, {"rows": 3}, {"x": x}).inputs[1].shape == (3, 5)
    assert read_graph(content, {"x": (3, 5)}, {"x": x}).inputs[1].shape == (3, 5)
    assert "rows is 3; --shapes gives rows=4" in says(content, {"x": x}, rows=4)
    assert "width is 4; its 'x' gives width=5" in says(
        content, {"x": x, "z": np.ones((3, 4), np.float32)}
    )


def test_a_value_gives_an_input_without_a_shape_one() -> None:
    content = model_of({"x": (FLOAT, None)}, [node("Exp", ["x"])])  # type: ignore[dict-item]
    assert read_graph(content, {}, {"x": np.ones((2, 3), np.float32)}).inputs[0].shape == (2, 3)


# --- fixed inputs


def test_an_input_that_decides_a_shape_is_fixed() -> None:
    values = {"size": np.array([4, 3]), "bias": np.array([2.0], np.float32)}
    graph = unpacked(packed(read_graph(RESHAPED, {}, values)))
    assert graph.labels == ("x", "size", "bias", "y")
    assert [tensor.name for tensor in graph.inputs] == ["in0", "in1", "in2"]
    assert {name: array.tolist() for name, array in graph.fixed.items()} == {"in1": [4, 3]}
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    (y,) = graph_outputs(graph, [x, values["size"], np.array([5.0], np.float32)])
    np.testing.assert_array_equal(y, (x + 5).reshape(4, 3))


def test_without_its_value_the_way_out_is_named() -> None:
    assert "operator Reshape" in says(RESHAPED, {})
    assert "give the value of 'size' by --inputs FILE.npz" in says(RESHAPED, {})


def test_nothing_is_fixed_where_a_value_decides_no_shape() -> None:
    content = model_of({"x": (FLOAT, [3])}, [node("Exp", ["x"])], rank=1)
    assert read_graph(content, {}, {"x": np.ones(3, np.float32)}).fixed == {}


def test_a_shape_computed_from_a_shape_fixes_nothing() -> None:
    content = model_of(
        {"x": (FLOAT, [2, 6]), "like": (FLOAT, [3, 4])},
        [node("Shape", ["like"], "s"), node("Reshape", ["x", "s"])],
    )
    assert read_graph(content, {}, {"like": np.zeros((3, 4), np.float32)}).fixed == {}


def test_an_input_that_decides_a_branch_is_fixed() -> None:
    """Branches of other shapes; of equal shapes the condition stays free."""

    def branch(name: str, constant: Array) -> Any:
        out = helper.make_tensor_value_info(name, FLOAT, constant.shape)
        made = helper.make_node("Constant", [], [name], value=numpy_helper.from_array(constant))
        return helper.make_graph([made], name, [], [out])

    def content(shape: tuple[int, ...]) -> bytes:
        then, other = np.ones(3, np.float32), np.zeros(shape, np.float32)
        choose = node(
            "If", ["c"], "z", then_branch=branch("a", then), else_branch=branch("b", other)
        )
        return model_of({"x": (FLOAT, [1]), "c": (BOOL, [])}, [choose, node("Add", ["x", "z"])], {})

    c = np.array(False)
    graph = read_graph(content((2, 5)), {}, {"c": c})
    assert not graph.fixed["in1"] and graph.tensor(graph.outputs[0]).shape == (2, 5)
    assert read_graph(content((5,)), {}, {"c": c}).fixed == {}
    assert "give the value of 'c'" in says(content((2, 5)), {})


def test_a_value_too_large_to_be_fixed_is_refused() -> None:
    content = model_of(
        {"x": (FLOAT, [4096]), "axes": (INT64, [4096])},
        [
            node("ReduceMax", ["axes"], "most", keepdims=0),
            node("Unsqueeze", ["x", "most"]),
        ],
    )
    message = says(content, {"axes": np.zeros(4096, np.int64)})
    assert "'axes' cannot be fixed at its value: it has 4096 elements, the limit is 1024" in message


def test_the_confined_reader_gets_the_values() -> None:
    size = np.array([6, 2])
    graph = import_model(RESHAPED, {}, {"size": size})
    assert graph.fixed["in1"].tolist() == [6, 2]
    inputs = check_inputs(graph, {"size": size})
    (right,) = reference_outputs(RESHAPED, inputs, {}, {"size": size})
    (got,) = graph_outputs(graph, inputs)
    np.testing.assert_allclose(got, right, rtol=1e-6)


# --- inputs that are generated


def test_generated_indices_lie_within_their_table() -> None:
    table = np.arange(40, dtype=np.float32).reshape(20, 2)
    content = model_of(
        {"ids": (INT64, [3, 50]), "mask": (INT64, [3, 50])},
        [
            node("Gather", ["table", "ids"], "rows", axis=0),
            node("Cast", ["mask"], "kept", to=FLOAT),
            node("Unsqueeze", ["kept", "last"], "column"),
            node("Mul", ["rows", "column"]),
        ],
        {"table": table, "last": np.array([2])},
        rank=3,
    )
    graph = read_graph(content, {})
    ids, mask = check_inputs(graph, {})
    assert ids.min() >= 0 and 10 < ids.max() < 20
    assert set(np.unique(mask)) == {0, 1}
    (right,) = ReferenceEvaluator(onnx.load_model_from_string(content)).run(
        None, {"ids": ids, "mask": mask}
    )
    np.testing.assert_allclose(graph_outputs(graph, [ids, mask])[0], right, rtol=1e-6)


def test_given_values_are_passed_as_they_are() -> None:
    content = model_of({"x": (FLOAT, [3]), "z": (FLOAT, [3])}, [node("Add", ["x", "z"])], rank=1)
    z = np.array([7, 8, 9], np.float32)
    x, same = check_inputs(read_graph(content, {}), {"z": z})
    np.testing.assert_array_equal(same, z)
    assert np.abs(x).max() > 0
