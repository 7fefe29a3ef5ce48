"""Small ONNX files and random damage to them, of their bytes and of what they say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.support import onnx_networks as nets

_EXTENTS = (-(2**63), -1, 0, 1, 2, 3, 7, 2**20, 2**31 - 1, 2**31, 2**40, 2**63 - 1)
_NUMBERS = (*_EXTENTS, -2, -3, 4, 5, 100)
_FLOATS = (0.0, -1.0, 1e-30, 1e30, float("inf"), float("nan"))


def _weights(name: str, *shape: int) -> Any:
    rng = np.random.default_rng(len(name))
    return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)


def _image_net() -> bytes:
    node = helper.make_node
    nodes = [
        node(
            "Conv", ["x", "w", "b"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 1]
        ),
        node("BatchNormalization", ["c", "b", "b", "b", "v"], ["n"]),
        node("MaxPool", ["n"], ["p"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("Resize", ["p", "", "s"], ["r"], mode="linear"),
        node("Shape", ["r"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"], axis=0),
        node("Concat", ["batch", "rest"], ["target"], axis=0),
        node("Reshape", ["r", "target"], ["flat"]),
        node("Slice", ["flat", "zero", "rest2", "one"], ["cut"]),
        node("Softmax", ["cut"], ["soft"], axis=-1),
        node("ReduceMean", ["soft"], ["m"], axes=[1], keepdims=1),
        node("Split", ["soft"], ["left", "right"], axis=0),
        node("TopK", ["left", "one"], ["y", "places"]),
    ]
    initial = [
        _weights("w", 4, 2, 3, 3), _weights("b", 4),
        numpy_helper.from_array(np.ones(4, np.float32), "v"),
        numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "s"),
        *(
            numpy_helper.from_array(np.array([number]), name)
            for name, number in {"zero": 0, "one": 1, "rest": -1, "rest2": 9}.items()
        ),
    ]  # fmt: skip
    return _file(nodes, {"x": (2, 2, 6, 5)}, initial, {"y": 2, "places": 2, "m": 2, "right": 2}, 16)


def _branches() -> bytes:
    def body(op: str) -> Any:
        value = helper.make_tensor_value_info("z", TensorProto.FLOAT, [3])
        return helper.make_graph([helper.make_node(op, ["x"], ["z"])], op, [], [value])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["positive"]),
        helper.make_node(
            "If", ["positive"], ["y"], then_branch=body("Exp"), else_branch=body("Neg")
        ),
    ]
    zero = numpy_helper.from_array(np.array(0, np.float32), "zero")
    return _file(nodes, {"x": (3,)}, [zero], {"y": 1}, 17)


def _sequence() -> bytes:
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], ["h"], hidden_size=3),
        helper.make_node("Squeeze", ["h"], ["y"], axes=[1]),
    ]
    initial = [_weights("w", 1, 12, 2), _weights("r", 1, 12, 3)]
    return _file(nodes, {"x": (4, 1, 2)}, initial, {"y": 3}, 11)


def _old() -> bytes:
    nodes = [
        helper.make_node("Add", ["x", "c"], ["a"], broadcast=1, axis=1),
        helper.make_node("Pad", ["a"], ["p"], pads=[0, 0, 1, 0, 0, 1], value=1.0),
        helper.make_node("Reshape", ["p", "shape"], ["y"]),
    ]
    initial = [_weights("c", 3), numpy_helper.from_array(np.array([0, -1]), "shape")]
    return _file(nodes, {"x": (2, 3, 4)}, initial, {"y": 2}, 6)


def _function() -> bytes:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    inner = [
        helper.make_node("MatMul", ["a", "b"], ["ab"]),
        helper.make_node("QuantizeLinear", ["ab", "scale"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale"], ["c"]),
    ]
    function = helper.make_function("own", "Product", ["a", "b", "scale"], ["c"], inner, opsets)
    nodes = [helper.make_node("Product", ["x", "w", "s"], ["y"], domain="own")]
    initial = [_weights("w", 4, 3), numpy_helper.from_array(np.array(0.1, np.float32), "s")]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])]
    graph = helper.make_graph(nodes, "g", values, results, initial)
    made = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=9)
    return bytes(made.SerializeToString())


def _file(
    nodes: list[Any], inputs: Mapping[str, tuple[int, ...]], initial: list[Any],
    outputs: Mapping[str, int], opset: int,
) -> bytes:  # fmt: skip
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    results = [
        helper.make_tensor_value_info(name, 7 if name == "places" else 1, [None] * rank)
        for name, rank in outputs.items()
    ]
    graph = helper.make_graph(nodes, "g", values, results, initial)
    # Constants are listed among the inputs where that was the rule.
    if opset < 9:
        graph.input.extend(
            helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in initial
        )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return bytes(made.SerializeToString())


def samples() -> dict[str, bytes]:
    """Sound files, by name."""
    return {
        "perceptron": nets.serialized(nets.perceptron(rows=2, sizes=(4, 8, 3))),
        "image": _image_net(), "branches": _branches(), "sequence": _sequence(),
        "old": _old(), "function": _function(),
    }  # fmt: skip


# --- damage


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """The file with a change or two: of its bytes, of a field, or of what a number or name
    means, which gets further than the others."""
    kind = rng.random()
    if kind < 0.2:
        return _bytes_changed(content, rng)
    model = onnx.ModelProto.FromString(content)
    for _ in range(int(rng.integers(1, 3))):
        _message_changed(model, rng) if kind < 0.4 else _meaning_changed(model, rng)
    return bytes(model.SerializeToString())


def _meaning_changed(model: Any, rng: np.random.Generator) -> None:
    """Another number in an attribute or a constant, another operator, operand or type."""
    nodes = [m for m in _messages(model) if isinstance(m, onnx.NodeProto)]
    node = nodes[int(rng.integers(len(nodes)))]
    names = [*node.input, *(name for other in nodes for name in other.output), "", "x"]
    match int(rng.integers(7)):
        case 0 | 1 if node.attribute:
            _attribute_changed(node.attribute[int(rng.integers(len(node.attribute)))], rng)
        case 2 if model.graph.initializer:
            _constant_changed(model.graph.initializer, rng)
        case 3 if node.input:
            node.input[int(rng.integers(len(node.input)))] = names[int(rng.integers(len(names)))]
        case 4:
            node.op_type = nodes[int(rng.integers(len(nodes)))].op_type
        case 5:
            schemas = onnx.defs.get_all_schemas()
            node.op_type = schemas[int(rng.integers(len(schemas)))].name
        case _:
            dims = model.graph.input[0].type.tensor_type.shape.dim
            if len(dims):
                dims[int(rng.integers(len(dims)))].dim_value = _number(rng)


def _attribute_changed(attribute: Any, rng: np.random.Generator) -> None:
    if attribute.HasField("i"):
        attribute.i = _number(rng)
    elif attribute.ints:
        attribute.ints[int(rng.integers(len(attribute.ints)))] = _number(rng)
    elif attribute.HasField("f"):
        attribute.f = float(rng.choice(_FLOATS))
    elif attribute.HasField("s"):
        attribute.s = rng.choice([b"", b"linear", b"cubic", b"SAME_UPPER", b"reflect", b"\xff"])


def _constant_changed(tensors: Any, rng: np.random.Generator) -> None:
    """Another content, rank or type, with as many bytes as it should have."""
    place = int(rng.integers(len(tensors)))
    array = numpy_helper.to_array(tensors[place]).copy()
    match int(rng.integers(3)):
        case 0 if array.dtype == np.int64 and array.size:
            array.reshape(-1)[int(rng.integers(array.size))] = _number(rng)
        case 0 if array.dtype.kind == "f" and array.size:
            array.reshape(-1)[int(rng.integers(array.size))] = rng.choice(_FLOATS)
        case 1:
            kinds = (np.int32, np.float64, np.uint8, np.bool_, np.float16, np.complex64)
            with np.errstate(all="ignore"):
                array = array.astype(kinds[int(rng.integers(len(kinds)))])
        case _:
            shapes = ((-1,), (1, -1), (-1, 1, 1), (1, 1, 1, -1))
            array = array.reshape(shapes[int(rng.integers(len(shapes)))])
    tensors[place].CopyFrom(numpy_helper.from_array(array, tensors[place].name))


def _number(rng: np.random.Generator) -> int:
    return _NUMBERS[int(rng.integers(len(_NUMBERS)))]


def _bytes_changed(content: bytes, rng: np.random.Generator) -> bytes:
    begin = int(rng.integers(len(content)))
    end = begin + int(rng.integers(1, 9))
    match int(rng.integers(4)):
        case 0:
            return content[:begin]
        case 1:
            return content[:begin] + rng.bytes(end - begin) + content[end:]
        case 2:
            return content[:begin] + content[end:]
        case _:
            return content[:begin] + rng.bytes(4) + content[begin:]


def _message_changed(model: Any, rng: np.random.Generator) -> None:
    """Changes a random field of a random message, in place."""
    messages = list(_messages(model))
    message = messages[int(rng.integers(len(messages)))]
    fields = message.DESCRIPTOR.fields
    field = fields[int(rng.integers(len(fields)))]
    if field.is_repeated:
        _list_changed(getattr(message, field.name), field, rng)
    elif field.message_type is not None:
        if rng.random() < 0.5:
            message.ClearField(field.name)
        else:
            getattr(message, field.name).SetInParent()
    else:
        setattr(message, field.name, _scalar(field, rng))


def _messages(message: Any) -> Any:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                yield from _messages(inner)


def _list_changed(values: Any, field: Any, rng: np.random.Generator) -> None:
    place = int(rng.integers(len(values))) if len(values) else 0
    choice = int(rng.integers(4))
    if choice == 0 and len(values):
        del values[place]
    elif choice == 1 and len(values):
        values.append(values[place])
    elif field.message_type is not None:
        values.add()
    elif choice == 2 and len(values):
        values[place] = _scalar(field, rng)
    else:
        values.append(_scalar(field, rng))


def _scalar(field: Any, rng: np.random.Generator) -> Any:
    makers: Mapping[int, Callable[[], Any]] = {
        field.CPPTYPE_STRING: lambda: _text(field, rng),
        field.CPPTYPE_FLOAT: lambda: float(rng.choice(_FLOATS)),
        field.CPPTYPE_DOUBLE: lambda: float(rng.choice(_FLOATS)),
        field.CPPTYPE_INT32: lambda: int(rng.integers(-2, 30)),
        field.CPPTYPE_ENUM: lambda: int(rng.choice([v.number for v in field.enum_type.values])),
        field.CPPTYPE_INT64: lambda: _number(rng),
        field.CPPTYPE_UINT64: lambda: abs(_NUMBERS[int(rng.integers(1, len(_NUMBERS)))]),
    }
    return makers[field.cpp_type]()


def _text(field: Any, rng: np.random.Generator) -> Any:
    if field.type == field.TYPE_BYTES:
        return rng.bytes(int(rng.integers(12)))
    words = ("", "x", "y", "w", "a", "Add", "Reshape", "Loop", "Expand", "axis", "float", "é" * 300)
    return words[int(rng.integers(len(words)))]
