"""What given values say of a parsed model's inputs: that they fit, and the shapes they have."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from tuner.models.errors import ModelRefused
from tuner.models.files.input_shapes import InputShapes
from tuner.models.files.input_values import Array, InputValues
from tuner.models.operators.formats import FORMATS
from tuner.workload.arrays import numpy_dtype


def inputs_of(graph: Any) -> list[Any]:
    """The inputs of an `onnx.GraphProto` that have no default, in its order."""
    initial = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in initial]


def with_shapes_of(graph: Any, shapes: InputShapes, values: InputValues) -> InputShapes:
    """The shapes with those of the values: whole ones of their inputs, and the extents that
    these inputs name, for other inputs.

    An input without a shape gets as many dimensions as its value has, in place. Raises
    ModelRefused for a value that is not of an input, or has another dtype or shape than
    the file and `shapes` give the input.
    """
    inputs = {value.name: value for value in inputs_of(graph)}
    for name in values:
        if name not in inputs:
            raise ModelRefused(
                f"--inputs has {name[:64]!r}, which is no input of the model; its inputs are "
                f"{', '.join(map(repr, inputs))}"
            )
    extents: dict[str, int | tuple[int, ...]] = dict(shapes)
    sources = {name: "--shapes" for name in shapes}
    for name, array in values.items():
        tensor = inputs[name].type.tensor_type
        if not tensor.HasField("shape"):
            tensor.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in array.shape)
        _check_dtype(name, array, tensor.elem_type)
        _check_shape(inputs[name], array)
        for dimension, extent in zip(tensor.shape.dim, array.shape, strict=True):
            named = dimension.dim_param
            if named and extents.setdefault(named, extent) != extent:
                raise ModelRefused(
                    f"--inputs gives {name!r} the shape {_spelt(array.shape)}, whose "
                    f"{named} is {extent}; {sources[named]} gives {named}={extents[named]}"
                )
            sources.setdefault(named, f"its {name!r}")
        if extents.get(name, array.shape) != array.shape:
            raise ModelRefused(
                f"--inputs gives {name!r} the shape {_spelt(array.shape)}, --shapes another"
            )
        extents[name] = array.shape
    return extents


def typed(values: InputValues, graph: Any) -> InputValues:
    """The values in the dtypes of their inputs: bfloat16 is given as its bits."""
    types = {value.name: value.type.tensor_type.elem_type for value in inputs_of(graph)}
    bfloat16 = numpy_dtype("bfloat16")
    return {
        name: array.view(bfloat16) if types[name] == onnx.TensorProto.BFLOAT16 else array
        for name, array in values.items()
    }


def _check_dtype(name: str, array: Array, element_type: int) -> None:
    right, note = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_type)), ""
    if element_type == onnx.TensorProto.BFLOAT16:
        right, note = np.dtype(np.uint16), ", the bits of bfloat16"
    elif right.name in FORMATS:
        right, note = np.dtype(FORMATS[right.name].storage), f", the bytes of {right.name}"
    if array.dtype != right:
        raise ModelRefused(
            f"--inputs gives {name!r} as {array.dtype}; the model takes {right}{note}"
        )


def _check_shape(value: Any, array: Array) -> None:
    declared = value.type.tensor_type.shape.dim
    stated = [
        d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None for d in declared
    ]
    fits = len(stated) == array.ndim and all(
        extent in (None, given) for extent, given in zip(stated, array.shape, strict=True)
    )
    if not fits:
        spelt = "x".join(
            str(extent) if extent else d.dim_param or "?"
            for extent, d in zip(stated, declared, strict=True)
        )
        raise ModelRefused(
            f"--inputs gives {value.name!r} the shape {_spelt(array.shape)}; the file gives it "
            f"the shape {spelt or 'of a single number'}"
        )


def _spelt(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "of a single number"
