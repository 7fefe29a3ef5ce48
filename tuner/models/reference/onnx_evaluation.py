"""ONNX's reference evaluator on a checked model, with what it does not run put right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from tuner.models.errors import NotEvaluated
from tuner.models.evaluator.class_probabilities import SVMClassifier
from tuner.models.evaluator.narrow_floats import compute_widely
from tuner.models.evaluator.older_operators import operators_of
from tuner.models.files.given_inputs import inputs_of
from tuner.models.files.onnx_file import opset_of
from tuner.models.from_onnx.node import element_type
from tuner.models.operators.formats import FORMATS

Array = np.ndarray[Any, np.dtype[Any]]
FAULTS = (
    ValueError,
    TypeError,
    RuntimeError,
    KeyError,
    IndexError,
    ArithmeticError,
    AttributeError,
)


class ZipMap(OpRun):  # type: ignore[misc]  # onnx has no types
    """Maps as the matrix of their values, as libraries give them; the evaluator has none."""

    op_domain = "ai.onnx.ml"

    def _run(self, x: Array, **labels: Any) -> tuple[Array]:
        return (x.reshape(-1, x.shape[-1]),)


class GatherElements(OpRun):  # type: ignore[misc]  # onnx has no types
    """The evaluator's own fails at more than 64 rows: `numpy.choose` takes no more."""

    def _run(self, data: Array, indices: Array, axis: int | None = None) -> tuple[Array]:
        along = 0 if axis is None else axis
        extent = data.shape[along]
        inside = np.where(indices < 0, indices + extent, indices)
        rows = tuple(
            slice(0, size) if number != along % data.ndim else slice(None)
            for number, size in enumerate(indices.shape)
        )
        return (np.take_along_axis(data[rows], inside, along),)


def evaluate(model: Any, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of the model for inputs in its order. Raises NotEvaluated."""
    results = evaluate_all(model, inputs)
    return [results[output.name] for output in model.graph.output]


def evaluate_all(model: Any, inputs: Sequence[Array]) -> dict[str, Array]:
    """Every value of the model's graph by name, those inside operators left out.

    Numbers of a small format are in the bytes that hold them, as libraries have them.
    Raises NotEvaluated.
    """
    feeds = {}
    for value, array in zip(inputs_of(model.graph), inputs, strict=True):
        extents = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        array = array.reshape(extents)  # a number of graphs stored earlier has a dimension
        format = element_type(value.type.tensor_type.elem_type, value.name).format
        feeds[value.name] = array if format is None else format.typed(array)
    try:
        with np.errstate(all="ignore"):
            operators = [*operators_of(opset_of(model)), GatherElements, SVMClassifier, ZipMap]
            evaluator = ReferenceEvaluator(model, new_ops=operators)
            compute_widely(evaluator, model.graph)
            results = evaluator.run(None, feeds, intermediate=True)
    except FAULTS as error:
        text = f"{type(error).__name__}: {error}"[:400]
        raise NotEvaluated(f"ONNX's reference evaluator does not run the model: {text}") from error
    return {
        name: _in_bytes(np.asarray(array))
        for name, array in results.items()
        if isinstance(array, np.ndarray | np.generic)
    }


def _in_bytes(array: Array) -> Array:
    format = FORMATS.get(array.dtype.name)
    return array if format is None else format.stored(array)
