"""Files that are no models, damaged, or out for more: refused with one clear error,
nothing read or written beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support import onnx_networks as nets
from tuner.errors import UsageError
from tuner.models.errors import ModelRefused
from tuner.models.files.onnx_file import ModelLimits, read_model
from tuner.models.importer import import_file, import_model, reference_outputs
from tuner.models.reading import read_graph


def small() -> Any:
    return nets.perceptron(rows=2, sizes=(4, 8, 3))


def _external(model: Any) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../../../../etc/passwd"


def _external_in_attribute(model: Any) -> None:
    tensor = numpy_helper.from_array(np.zeros(3, np.float32), "z")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "/etc/passwd"
    model.graph.node.append(helper.make_node("Constant", [], ["unused"], value=tensor))


def _cycle(model: Any) -> None:
    model.graph.node[0].input[0] = model.graph.node[1].output[0]


def _huge_constant(model: Any) -> None:
    del model.graph.initializer[0].dims[:]
    model.graph.initializer[0].dims.extend([1 << 40, 1 << 40])


def _negative(model: Any) -> None:
    model.graph.initializer[0].dims[0] = -4


def _short_data(model: Any) -> None:
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-3]


def _huge_input(model: Any) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1 << 50


def _dynamic(model: Any) -> None:
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"


def _foreign(model: Any) -> None:
    model.graph.node[0].domain = "com.example"
    model.opset_import.append(helper.make_opsetid("com.example", 1))


def _function(name: str, *calls: str) -> Any:
    """A function that calls others one after the other."""
    values = ["a", *(f"v{number}" for number in range(len(calls) - 1)), "b"]
    nodes = [
        helper.make_node(call, [values[number]], [values[number + 1]], domain="own")
        for number, call in enumerate(calls)
    ] or [helper.make_node("Relu", ["a"], ["b"])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], ["b"], nodes, opsets)


def _recursion(model: Any) -> None:
    model.functions.append(_function("Mine", "Mine"))
    _call(model, "Mine")


def _explosion(model: Any) -> None:
    """Thirty functions, each of which calls the next twice."""
    model.functions.extend(
        _function(f"F{number}", *([f"F{number + 1}"] * 2 if number < 29 else []))
        for number in range(30)
    )
    _call(model, "F0")


def _call(model: Any, name: str) -> None:
    model.graph.node[0].op_type, model.graph.node[0].domain = name, "own"
    del model.graph.node[0].input[1:]
    model.opset_import.append(helper.make_opsetid("own", 1))


def _subgraph(model: Any) -> None:
    inner = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["z"])], "inner", [], [onnx.ValueInfoProto(name="z")]
    )
    model.graph.node.append(
        helper.make_node("If", ["x"], ["w"], then_branch=inner, else_branch=inner)
    )


def _long_name(model: Any) -> None:
    model.graph.output[0].name = model.graph.node[-1].output[0] = "../" * 1400


def _contradiction(model: Any) -> None:
    model.graph.node[0].input[1] = model.graph.node[0].input[0]


def _opset(model: Any) -> None:
    model.opset_import[0].version = 9999


def _unknown(model: Any) -> None:
    model.graph.node[0].op_type = "Exfiltrate"


CASES: dict[str, tuple[Callable[[Any], None], str]] = {
    "external data": (_external, "file of its own"),
    "external data in an attribute": (_external_in_attribute, "file of its own"),
    "a cycle": (_cycle, "not valid ONNX"),
    "a huge constant": (_huge_constant, "elements, the limit is"),
    "a negative extent": (_negative, "which is none"),
    "too little data": (_short_data, "damaged"),
    "a huge input": (_huge_input, "more than is taken"),
    "a named extent": (_dynamic, "--shapes batch=1"),
    "another domain": (_foreign, "com.example"),
    "a recursive function": (_recursion, "calls itself"),
    "functions that double": (_explosion, "operators with its functions inlined"),
    "a condition that is none": (_subgraph, "not valid ONNX"),
    "a long name": (_long_name, "characters, the limit is 4096"),
    "shapes that do not fit": (_contradiction, "a product of shapes"),
    "an opset of tomorrow": (_opset, "opset 9999"),
    "an unknown operator": (_unknown, "not valid ONNX"),
}


@pytest.mark.parametrize("case", list(CASES))
def test_each_is_refused_with_its_reason(case: str) -> None:
    change, text = CASES[case]
    model = small()
    change(model)
    with pytest.raises(ModelRefused) as refused:
        read_graph(model.SerializeToString(), {})
    assert text in str(refused.value)
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize("content", [b"", b"\x00" * 64, b"not a model", b"\xff" * 4096])
def test_what_is_no_model_is_refused(content: bytes) -> None:
    with pytest.raises(ModelRefused):
        read_model(content, {})


def many_arguments(count: int) -> bytes:
    """The cache of a decoder: so many inputs, and an output for each."""
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Neg", [f"past.{k}"], [f"present.{k}"]) for k in range(count)],
        "cache",
        *(
            [helper.make_tensor_value_info(f"{name}.{k}", kind, [2]) for k in range(count)]
            for name in ("past", "present")
        ),
    )
    opsets = [helper.make_opsetid("", 17)]
    return nets.serialized(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def test_a_model_has_as_many_arguments_as_a_library_takes() -> None:
    assert len(read_model(many_arguments(256), {}).graph.input) == 256
    with pytest.raises(ModelRefused, match="514 inputs and outputs, the limit is 512"):
        read_model(many_arguments(257), {})


def test_limits_name_themselves() -> None:
    content = nets.serialized(small())
    with pytest.raises(ModelRefused, match="the limit is 100"):
        read_model(content, {}, ModelLimits(nbytes=100))
    with pytest.raises(ModelRefused, match="the limit is 2"):
        read_model(content, {}, ModelLimits(nodes=2))


def test_truncated_and_flipped_files_are_refused_or_are_models() -> None:
    content = nets.serialized(small())
    rng = np.random.default_rng(5)
    refused = 0
    for _ in range(300):
        damaged = bytearray(content)
        if rng.random() < 0.5:
            damaged = damaged[: rng.integers(1, len(content))]
        else:
            for place in rng.integers(0, len(damaged), 4):
                damaged[place] ^= 1 << int(rng.integers(8))
        try:
            read_model(bytes(damaged), {})
        except ModelRefused:
            refused += 1
    assert refused > 100


def test_named_extents_are_given() -> None:
    model = small()
    _dynamic(model)
    fixed = read_model(model.SerializeToString(), {"batch": 3})
    assert [
        dimension.dim_value for dimension in fixed.graph.input[0].type.tensor_type.shape.dim
    ] == [3, 4]
    with pytest.raises(ModelRefused, match="'rows'"):
        read_model(model.SerializeToString(), {"batch": 3, "rows": 1})


def test_the_reader_is_confined_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the process of its own, which writes nothing where it runs or where the caller is."""
    monkeypatch.chdir(tmp_path)
    model = small()
    _external(model)
    with pytest.raises(UsageError, match="file of its own"):
        import_model(model.SerializeToString())
    with pytest.raises(ModelRefused, match="is no file"):
        import_file(tmp_path / "missing.onnx")
    assert list(tmp_path.iterdir()) == []


def test_the_reference_runs_in_the_reader() -> None:
    model = small()
    given = nets.feeds(model)["x"]
    (output,) = reference_outputs(nets.serialized(model), [given])
    np.testing.assert_allclose(output.sum(axis=1), np.ones(2), rtol=1e-5)
