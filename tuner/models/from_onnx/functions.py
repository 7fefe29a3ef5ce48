"""Operators that the standard defines by other operators: their bodies, for one call.

Some bodies depend on the types of the inputs and on which inputs are there, so they are
made where these are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from tuner.models.operators.values import Value
from tuner.workload.arrays import numpy_dtype


def standard_function(proto: Any, inputs: Sequence[Value | None], opset: int) -> Any | None:
    """The body of the operator as a `FunctionProto` without references to attributes.

    An input that is left out is an empty name in it. None where the standard, in this opset
    of the operator's domain, defines the operator by no others.
    """
    try:
        schema = onnx.defs.get_schema(proto.op_type, opset, proto.domain)
    except onnx.defs.SchemaError:
        return None
    stated = onnx.NodeProto()
    stated.CopyFrom(proto)
    given = {attribute.name for attribute in proto.attribute}
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.name:
            stated.attribute.append(attribute.default_value)
    content = _content(schema, stated, inputs, opset)
    if content is None:
        return None
    function = onnx.FunctionProto()
    function.ParseFromString(content)
    if all(entry.domain for entry in function.opset_import):
        newest = onnx.helper.make_opsetid("", onnx.defs.onnx_opset_version())
        function.opset_import.append(newest)
    absent = {
        name
        for place, name in enumerate(function.input)
        if place >= len(inputs) or inputs[place] is None
    }
    _bind(function.node, {a.name: a for a in stated.attribute}, absent)
    return function


def _content(schema: Any, proto: Any, inputs: Sequence[Value | None], opset: int) -> bytes | None:
    """The serialized body of the newest version up to the opset."""
    versions = [version for version in schema.function_opset_versions if version <= opset]
    if versions:
        content: bytes = schema.get_function_with_opset_version(max(versions))
        return content
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if not versions:
        return None
    types = [_type(value).SerializeToString() for value in inputs]
    content = schema.get_context_dependent_function_with_opset_version(
        max(versions), proto.SerializeToString(), types
    )
    return content or None


def _type(value: Value | None) -> Any:
    if value is None:
        return onnx.TypeProto()
    empty = np.empty(0, numpy_dtype(value.dtype))
    dtype = empty.dtype if value.format is None else value.format.typed(empty).dtype
    element = onnx.helper.np_dtype_to_tensor_dtype(dtype)
    return onnx.helper.make_tensor_type_proto(element, value.shape)


def _bind(nodes: Sequence[Any], attributes: Mapping[str, Any], absent: set[str]) -> None:
    """Puts a call's attributes where nodes refer to them, in place; drops the references
    to those that the call does not have, and the names of inputs that are left out."""
    for node in nodes:
        names = ["" if name in absent else name for name in node.input]
        del node.input[:]
        node.input.extend(names)
        bound = list(_attributes(node, attributes))
        del node.attribute[:]
        node.attribute.extend(bound)
        for attribute in node.attribute:
            for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _bind(graph.node, attributes, absent)


def _attributes(node: Any, attributes: Mapping[str, Any]) -> Iterator[Any]:
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            yield attribute
        elif attribute.ref_attr_name in attributes:
            value = onnx.AttributeProto()
            value.CopyFrom(attributes[attribute.ref_attr_name])
            value.name = attribute.name
            yield value
