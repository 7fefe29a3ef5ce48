"""Parses an untrusted ONNX file, checks it, and fixes its shapes.

No reference out of the file is followed: where it has neighbours, their data was put
inside before. Operators of other domains that the file does not define are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from tuner.models.errors import ModelRefused
from tuner.models.files.given_inputs import with_shapes_of
from tuner.models.files.input_shapes import InputShapes
from tuner.models.files.input_values import InputValues
from tuner.models.files.old_opsets import is_old, modernised
from tuner.models.files.onnx_order import graphs_of, sort_operators
from tuner.models.files.text_labels import number_labels
from tuner.runtime.wrapper import MAX_ARGUMENTS

_DOMAINS = ("", "ai.onnx")
_MICROSOFT = "com.microsoft"
# Of the operators of QONNX: as Brevitas, QONNX and older versions of FINN write them.
QONNX_DOMAINS = ("onnx.brevitas", "qonnx.custom_op.general", "finn.custom_op.general")
# Of operators that no file need define.
_TAKEN = (*_DOMAINS, "ai.onnx.ml", "ai.onnx.preview", _MICROSOFT, *QONNX_DOMAINS)
_OF_THE_RUNTIME = ("LayerNormalization", "SimplifiedLayerNormalization")
_GREATEST_OPSET = onnx.defs.onnx_opset_version()
_HEAVY = 1 << 16  # bytes of a constant that is put aside while a model is checked
_ELEMENT_BYTES = 8  # of the widest supported element type


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """The largest file that is read."""

    nbytes: int = (1 << 31) - 1  # of the file: what protobuf can hold
    nodes: int = 10_000
    tensor_bytes: int = 1 << 31  # of one tensor, intermediates included
    arguments: int = MAX_ARGUMENTS  # inputs and outputs together
    dimensions: int = 8  # of a tensor
    name: int = 4096  # characters


LIMITS = ModelLimits()


def read_model(
    content: bytes | memoryview,
    shapes: InputShapes,
    limits: ModelLimits = LIMITS,
    *,
    values: InputValues | None = None,
) -> Any:
    """The checked `ModelProto`. Every extent of its inputs is a number.

    `shapes` gives the extents that the inputs only name; so do the shapes of `values`,
    which are of inputs. Raises ModelRefused with what is wrong, the limit, and the way
    out.
    """
    model = parsed(content, limits)
    _state_standard(model)
    _state_qonnx(model)
    _check_header(model)
    _rename_domains(model)
    _check_arguments(model.graph, limits)
    bodies = (model.graph, *model.functions)
    _check_nodes([node for body in bodies for node in nodes_of(body)], limits)
    _check_attributes(model.graph)
    sort_operators(model.graph)
    number_labels(model)
    for body in bodies:
        for tensor in tensors_of(body):
            _check_tensor(tensor, limits)
    _check_expansion(model, limits)
    _fix_shapes(model.graph, with_shapes_of(model.graph, shapes, values or {}), limits)
    return _in_a_recent_opset(_valid(model))


def parsed(content: bytes | memoryview, limits: ModelLimits) -> Any:
    """The `ModelProto` as it is. Raises ModelRefused for bytes that are none."""
    if not content:
        raise ModelRefused("the file is empty; give an .onnx file")
    if len(content) > limits.nbytes:
        raise ModelRefused(f"the file has {len(content)} bytes, the limit is {limits.nbytes}")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except (DecodeError, RuntimeError, ValueError) as error:
        raise ModelRefused(f"the file is no ONNX model: {error}") from error
    return model


def _in_a_recent_opset(model: Any) -> Any:
    """The model in opset 9 or later, its types inferred anew, and with the attributes that
    were left out: their defaults depend on the opset."""
    _state_defaults(model)
    if not is_old(model):
        return model
    modern = modernised(model)
    del modern.graph.value_info[:]
    return _valid(modern)


def _state_defaults(model: Any) -> None:
    version = opset_of(model)
    for node in nodes_of(model.graph):
        if node.domain not in _DOMAINS or not onnx.defs.has(node.op_type, version):
            continue
        stated = {attribute.name for attribute in node.attribute}
        schema = onnx.defs.get_schema(node.op_type, version)
        for name, attribute in schema.attributes.items():
            if name not in stated and attribute.default_value.name:
                node.attribute.append(attribute.default_value)


def _state_standard(model: Any) -> None:
    """Names an opset of the standard in a file of operators of other domains alone, which
    need not name any."""
    standard = any(node.domain in _DOMAINS for node in nodes_of(model.graph))
    if model.opset_import and not standard and not opset_of(model):
        model.opset_import.append(onnx.helper.make_opsetid("", _GREATEST_OPSET))


def _state_qonnx(model: Any) -> None:
    """Names the version of QONNX's operators in a file that has them and does not, as tools
    have written that add them to a model."""
    stated = {entry.domain for entry in model.opset_import}
    used = {node.domain for body in (model.graph, *model.functions) for node in nodes_of(body)}
    for domain in QONNX_DOMAINS:
        if domain in used - stated:
            model.opset_import.append(onnx.helper.make_opsetid(domain, 1))


def _check_header(model: Any) -> None:
    """Checks that there is a graph, of operators that are known, in a supported opset."""
    if not model.HasField("graph"):
        raise ModelRefused("the file holds no graph of operators; is it an .onnx file?")
    if not model.graph.output:
        raise ModelRefused(
            f"the graph of {len(model.graph.node)} operators has no output; export a model that "
            f"returns its tensors"
        )
    own = {(function.domain, function.name) for function in model.functions}
    for node in nodes_of(model.graph):
        if node.domain not in _TAKEN and (node.domain, node.op_type) not in own:
            raise ModelRefused(
                f"operator {node.op_type[:60]} of domain {node.domain[:60]!r} is not taken; export "
                f"with plain ONNX"
            )
    version = opset_of(model)
    if not 1 <= version <= _GREATEST_OPSET:
        raise ModelRefused(
            f"the model is of opset {version}; opsets 1 to {_GREATEST_OPSET} are taken"
        )


def _rename_domains(model: Any) -> None:
    """Gives operators their domain that ONNX Runtime's optimiser writes as the standard's,
    which in the model's opset does not have them."""
    version, renamed = opset_of(model), False
    for body in (model.graph, *model.functions):
        for node in nodes_of(body):
            is_own = node.op_type in _OF_THE_RUNTIME and node.domain in _DOMAINS
            if is_own and not onnx.defs.has(node.op_type, version):
                node.domain, renamed = _MICROSOFT, True
    if renamed and all(entry.domain != _MICROSOFT for entry in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid(_MICROSOFT, 1))


def opset_of(model: Any) -> int:
    """Of the standard's operators; 0 for a file that names none."""
    return max((e.version for e in model.opset_import if e.domain in _DOMAINS), default=0)


def _check_arguments(graph: Any, limits: ModelLimits) -> None:
    initial = {tensor.name for tensor in graph.initializer}
    count = sum(value.name not in initial for value in graph.input) + len(graph.output)
    if count > limits.arguments:
        raise ModelRefused(
            f"the model has {count} inputs and outputs, the limit is {limits.arguments}"
        )
    _check_names([value.name for value in (*graph.input, *graph.output)], limits)


def _check_nodes(nodes: Sequence[Any], limits: ModelLimits) -> None:
    """Checks the number of operators, those inside others included, and their names."""
    if len(nodes) > limits.nodes:
        raise ModelRefused(f"the model has {len(nodes)} operators, the limit is {limits.nodes}")
    _check_names([name for node in nodes for name in (*node.input, *node.output)], limits)


def _check_attributes(graph: Any) -> None:
    """Checks that no operator outside of functions takes an attribute of one."""
    for node in nodes_of(graph):
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                raise ModelRefused(
                    f"operator {node.op_type[:60]} refers to the attribute "
                    f"{attribute.ref_attr_name[:60]!r} of a function, but is in none"
                )


def _check_names(names: Sequence[str], limits: ModelLimits) -> None:
    for name in names:
        if len(name) > limits.name:
            raise ModelRefused(
                f"the name {name[:60]!r}… has {len(name)} characters, the limit is {limits.name}"
            )


def nodes_of(body: Any) -> Iterator[Any]:
    """Operators of a graph or function, and of the graphs inside of them."""
    for node in body.node:
        yield node
        for graph in graphs_of(node):
            yield from nodes_of(graph)


def tensors_of(body: Any) -> Iterator[Any]:
    """All constants of a graph or function: initializers and attributes of nodes."""
    if isinstance(body, onnx.GraphProto):
        yield from body.initializer
        if body.sparse_initializer:
            raise ModelRefused("the model has sparse constants; export it with dense ones")
    for node in body.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
                raise ModelRefused(
                    f"operator {node.op_type[:60]} has a sparse constant; export it with dense ones"
                )
        for graph in graphs_of(node):
            yield from tensors_of(graph)


def _check_tensor(tensor: Any, limits: ModelLimits) -> None:
    """Checks a constant: its data is in the file, its size within the limits, and sound."""
    name = tensor.name[:60]
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
        raise ModelRefused(
            f"constant {name!r} lies in a file of its own, which is not read; save the model "
            f"with its data inside "
            "(onnx.save_model without save_as_external_data)"
        )
    if len(tensor.dims) > limits.dimensions or any(extent < 0 for extent in tensor.dims):
        raise ModelRefused(f"constant {name!r} has shape {list(tensor.dims)[:16]}, which is none")
    count = prod(max(extent, 1) for extent in tensor.dims)
    if count * _ELEMENT_BYTES > limits.tensor_bytes:
        raise ModelRefused(
            f"constant {name!r} has {count} elements, the limit is "
            f"{limits.tensor_bytes // _ELEMENT_BYTES}"
        )
    try:
        onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise ModelRefused(f"constant {name!r} is damaged: {error}") from error


def _fix_shapes(graph: Any, shapes: InputShapes, limits: ModelLimits) -> None:
    """Gives the named extents of inputs their numbers, in place."""
    initial = {tensor.name for tensor in graph.initializer}
    used: set[str] = set()
    for value in graph.input:
        if value.name in initial:
            continue
        if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
            raise ModelRefused(
                f"input {value.name!r} is no tensor with a shape; export the model with "
                f"fixed shapes"
            )
        dimensions = value.type.tensor_type.shape.dim
        if value.name in shapes:
            used |= {value.name, *(dimension.dim_param for dimension in dimensions)}
            _set_shape(value, shapes[value.name])
        for dimension in dimensions:
            given = shapes.get(dimension.dim_param)
            if isinstance(given, int):
                used.add(dimension.dim_param)
                dimension.dim_value = given
            if not dimension.HasField("dim_value") or dimension.dim_value < 0:
                raise ModelRefused(_open_extent(value))
        count = prod(max(dimension.dim_value, 1) for dimension in dimensions)
        if len(dimensions) > limits.dimensions or count * _ELEMENT_BYTES > limits.tensor_bytes:
            raise ModelRefused(
                f"input {value.name!r} has {len(dimensions)} dimensions and {count} elements, "
                f"more than is taken"
            )
    del graph.value_info[:]  # shapes of intermediates are inferred anew
    for value in graph.output:
        for dimension in value.type.tensor_type.shape.dim:
            given = shapes.get(dimension.dim_param)
            if isinstance(given, int):
                dimension.dim_value = given
    unknown = sorted(set(shapes) - used)
    if unknown:
        raise ModelRefused(
            f"no input is called {unknown[0]!r} or has an extent of this name; remove it from "
            f"the shapes"
        )


def _set_shape(value: Any, given: int | tuple[int, ...]) -> None:
    """Gives an input a whole shape, which must agree with what the file says of it."""
    shape = (given,) if isinstance(given, int) else given
    dimensions = value.type.tensor_type.shape.dim
    declared = [d.dim_value if d.HasField("dim_value") else -1 for d in dimensions]
    fits = len(shape) == len(declared) and all(
        extent < 1 or extent == asked for extent, asked in zip(declared, shape, strict=True)
    )
    if not fits or min(shape, default=0) < 0:
        spelt = "x".join(map(str, shape))
        raise ModelRefused(
            f"--shapes {value.name}={spelt} does not fit the input, which the file gives the "
            f"shape {_spelt(value)}"
        )
    for dimension, extent in zip(dimensions, shape, strict=True):
        dimension.dim_value = extent


def _spelt(value: Any) -> str:
    dimensions = value.type.tensor_type.shape.dim
    return "x".join(
        str(d.dim_value) if d.HasField("dim_value") and d.dim_value > 0 else d.dim_param or "?"
        for d in dimensions
    )


def _open_extent(value: Any) -> str:
    """What to do about an input with an extent that is no number."""
    names = [d.dim_param for d in value.type.tensor_type.shape.dim if d.dim_param]
    example = "x".join(
        str(d.dim_value) if d.HasField("dim_value") and d.dim_value > 0 else "1"
        for d in value.type.tensor_type.shape.dim
    )
    named = f"an extent, e.g. --shapes {names[0]}=1, or " if names else ""
    return (
        f"input {value.name!r} has the shape {_spelt(value)}; give {named}the whole shape, e.g. "
        f"--shapes {value.name}={example}"
    )


def _valid(model: Any) -> Any:
    """The model with the types of its tensors, as far as they can be inferred.

    Raises ModelRefused where it contradicts itself or has cycles.
    """
    heavy, declared = _put_aside(model.graph)
    # Until version 4 an initializer had to be an input, too; many files do without.
    model.ir_version = max(model.ir_version, 4)
    try:
        typed = onnx.shape_inference.infer_shapes(model, check_type=True, data_prop=True)
        for value in typed.graph.output:  # the checker wants shapes, which files may leave out
            if value.type.HasField("tensor_type") or not value.HasField("type"):
                value.type.tensor_type.shape.SetInParent()
        onnx.checker.check_model(typed)
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        ValueError,
        RuntimeError,
        TypeError,
    ) as error:
        text = " ".join(str(error).split())
        raise ModelRefused(f"the model is not valid ONNX: {text[:400]}") from error
    del typed.graph.input[declared:]
    typed.graph.initializer.extend(heavy)
    return typed


def _put_aside(graph: Any) -> tuple[list[Any], int]:
    """Takes the large constants out of a graph and declares them as inputs behind its own,
    because checking copies all that a model holds. The constants, and the number of inputs
    before."""
    declared = len(graph.input)
    heavy = [tensor for tensor in graph.initializer if tensor.ByteSize() > _HEAVY]
    if heavy:
        names = {value.name for value in graph.input}
        light = [tensor for tensor in graph.initializer if tensor.ByteSize() <= _HEAVY]
        del graph.initializer[:]
        graph.initializer.extend(light)
        graph.input.extend(
            onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            for tensor in heavy
            if tensor.name not in names
        )
    return heavy, declared


def _check_expansion(model: Any, limits: ModelLimits) -> None:
    """Checks the number of operators with all functions inlined.

    It may be exponential in the number of functions, so this comes before anything that
    looks into them.
    """
    functions = {(function.domain, function.name): function for function in model.functions}
    open_calls: set[tuple[str, str]] = set()

    @cache
    def count(name: tuple[str, str]) -> int:
        if name not in functions:
            return 1
        if name in open_calls:
            raise ModelRefused(f"function {name[1][:60]!r} of the model calls itself")
        open_calls.add(name)
        total = inside(functions[name])
        open_calls.remove(name)
        return total

    def inside(body: Any) -> int:
        return sum(count((node.domain, node.op_type)) for node in nodes_of(body))

    try:
        total = inside(model.graph)
    except RecursionError:
        raise ModelRefused("functions of the model call each other too deeply") from None
    if total > limits.nodes:
        raise ModelRefused(
            f"the model has {total} operators with its functions inlined, the limit is "
            f"{limits.nodes}"
        )
