"""Parses an untrusted ONNX file, checks it, and fixes its shapes.

Nothing else reads the file before. No reference out of the file is followed: external
data, functions, subgraphs and operators of other domains are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx.reference import ReferenceEvaluator

from tuner.models.errors import ModelRefused

_DOMAINS = ("", "ai.onnx")
_LEAST_OPSET, _GREATEST_OPSET = 7, 23
_SUBGRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
_ELEMENT_BYTES = 8  # of the widest supported element type


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """The largest file that is read."""

    nbytes: int = 1 << 29  # of the file
    nodes: int = 10_000
    tensor_bytes: int = 1 << 31  # of one tensor, intermediates included
    arguments: int = 48  # inputs and outputs together
    dimensions: int = 8  # of a tensor
    name: int = 256  # characters


LIMITS = ModelLimits()


def read_model(content: bytes, shapes: Mapping[str, int], limits: ModelLimits = LIMITS) -> Any:
    """The checked `ModelProto`. Every extent of its inputs is a number.

    `shapes` gives the extents that the inputs only name. Raises ModelRefused with what is
    wrong, the limit, and the way out.
    """
    if not content:
        raise ModelRefused("the file is empty; give an .onnx file")
    if len(content) > limits.nbytes:
        raise ModelRefused(f"the file has {len(content)} bytes, the limit is {limits.nbytes}")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except (DecodeError, RuntimeError, ValueError) as error:
        raise ModelRefused(f"the file is no ONNX model: {error}") from error
    _check_header(model)
    _check_nodes(model.graph, limits)
    for tensor in _tensors(model.graph):
        _check_tensor(tensor, limits)
    _fix_shapes(model.graph, shapes, limits)
    return _inferred(model, limits)


def _check_header(model: Any) -> None:
    """Checks that there is a graph, no functions, and a supported opset."""
    if not model.HasField("graph") or not model.graph.node:
        raise ModelRefused("the file holds no graph of operators; is it an .onnx file?")
    if len(model.functions):
        name = model.functions[0].name[:60]
        raise ModelRefused(
            f"the model defines functions of its own ({name!r}); inline them (onnx.inliner) and "
            f"try again"
        )
    opsets = {opset.domain: opset.version for opset in model.opset_import}
    foreign = {node.domain for node in model.graph.node} - set(_DOMAINS)
    if foreign:
        raise ModelRefused(
            f"operators of domain {sorted(foreign)[0][:60]!r} are not taken; export with plain ONNX"
        )
    version = max((opsets[domain] for domain in _DOMAINS if domain in opsets), default=0)
    if not _LEAST_OPSET <= version <= _GREATEST_OPSET:
        raise ModelRefused(
            f"the model is of opset {version}; opsets {_LEAST_OPSET} to {_GREATEST_OPSET} are taken"
        )


def _check_nodes(graph: Any, limits: ModelLimits) -> None:
    """Checks the number of nodes and arguments, the names, and that no node has a graph."""
    if len(graph.node) > limits.nodes:
        raise ModelRefused(
            f"the model has {len(graph.node)} operators, the limit is {limits.nodes}"
        )
    initial = {tensor.name for tensor in graph.initializer}
    count = sum(value.name not in initial for value in graph.input) + len(graph.output)
    if count > limits.arguments:
        raise ModelRefused(
            f"the model has {count} inputs and outputs, the limit is {limits.arguments}"
        )
    if graph.sparse_initializer:
        raise ModelRefused("the model has sparse constants; export it with dense ones")
    for node in graph.node:
        if any(attribute.type in _SUBGRAPHS for attribute in node.attribute):
            raise ModelRefused(
                f"operator {node.op_type[:60]} holds a graph of its own; models without control "
                f"flow are taken"
            )
    values = (*graph.input, *graph.output)
    for name in (
        *(value.name for value in values),
        *(name for node in graph.node for name in (*node.input, *node.output)),
    ):
        if len(name) > limits.name:
            raise ModelRefused(
                f"the name {name[:60]!r}… has {len(name)} characters, the limit is {limits.name}"
            )


def _tensors(graph: Any) -> Iterator[Any]:
    """All constants: initializers and attributes of nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
                raise ModelRefused(
                    f"operator {node.op_type[:60]} has a sparse constant; export it with dense ones"
                )


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
    count = prod(tensor.dims)
    if count * _ELEMENT_BYTES > limits.tensor_bytes:
        raise ModelRefused(
            f"constant {name!r} has {count} elements, the limit is "
            f"{limits.tensor_bytes // _ELEMENT_BYTES}"
        )
    try:
        onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise ModelRefused(f"constant {name!r} is damaged: {error}") from error


def _fix_shapes(graph: Any, shapes: Mapping[str, int], limits: ModelLimits) -> None:
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
        for dimension in dimensions:
            named = dimension.dim_param
            if named in shapes:
                used.add(named)
                dimension.dim_value = shapes[named]
            if not dimension.HasField("dim_value") or dimension.dim_value < 1:
                label = named or str(dimension.dim_value)
                raise ModelRefused(
                    f"input {value.name!r} has an extent {label!r}; give it a number, e.g. "
                    f"--shapes {named or 'N'}=1"
                )
        count = prod(dimension.dim_value for dimension in dimensions)
        if len(dimensions) > limits.dimensions or count * _ELEMENT_BYTES > limits.tensor_bytes:
            raise ModelRefused(
                f"input {value.name!r} has {len(dimensions)} dimensions and {count} elements, "
                f"more than is taken"
            )
    del graph.value_info[:]  # shapes of intermediates are inferred anew
    for value in graph.output:
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param in shapes:
                dimension.dim_value = shapes[dimension.dim_param]
    unknown = sorted(set(shapes) - used)
    if unknown:
        raise ModelRefused(
            f"no input has an extent named {unknown[0]!r}; remove it from the shapes"
        )


def _inferred(model: Any, limits: ModelLimits) -> Any:
    """The model with inferred shapes of all tensors.

    Raises ModelRefused where it contradicts itself, has cycles, or has a tensor above the
    limit.
    """
    try:
        onnx.checker.check_model(model)
        model = onnx.shape_inference.infer_shapes(
            model, check_type=True, strict_mode=True, data_prop=True
        )
        onnx.checker.check_model(model)
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        ValueError,
        RuntimeError,
        TypeError,
    ) as error:
        text = " ".join(str(error).split())
        raise ModelRefused(f"the model is not valid ONNX: {text[:400]}") from error
    for value in (*model.graph.value_info, *model.graph.output):
        extents = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        if (
            any(extent < 0 for extent in extents)
            or prod(max(extent, 1) for extent in extents) * _ELEMENT_BYTES > limits.tensor_bytes
        ):
            raise ModelRefused(
                f"tensor {value.name[:60]!r} would have shape {extents[:16]}, which is more "
                f"than is taken"
            )
    return model


def argument_names(model: Any) -> list[str]:
    """The names of the inputs that are no constants, then of the outputs."""
    initial = {tensor.name for tensor in model.graph.initializer}
    inputs = [value.name for value in model.graph.input if value.name not in initial]
    return [*inputs, *(value.name for value in model.graph.output)]


def evaluate(
    model: Any, inputs: Sequence[np.ndarray[Any, np.dtype[Any]]]
) -> list[np.ndarray[Any, np.dtype[Any]]]:
    """The outputs of ONNX's reference evaluator for inputs in the model's order.

    Raises ModelRefused where the evaluator fails.
    """
    names = argument_names(model)
    try:
        outputs = ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=False)))
    except (
        ValueError,
        TypeError,
        RuntimeError,
        KeyError,
        IndexError,
        ArithmeticError,
        NotImplementedError,
    ) as error:
        text = f"{type(error).__name__}: {error}"[:400]
        raise ModelRefused(f"ONNX's reference evaluator does not run the model: {text}") from error
    return [np.asarray(array) for array in outputs]
