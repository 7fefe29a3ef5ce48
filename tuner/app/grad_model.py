"""`tuner.grad_model`: the derivative of a model as a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner.errors import UsageError
from tuner.models.exported_program import is_exported_program, read_exported
from tuner.models.files.input_shapes import InputShapes
from tuner.models.files.input_values import InputValues
from tuner.models.graph import Graph
from tuner.models.importer import import_file
from tuner.models.passes.backward import backward


def grad_model(
    source: Any,
    wrt: str | Sequence[str] | None = None,
    *,
    shapes: InputShapes | None = None,
    inputs: InputValues | None = None,
) -> Graph:
    """The derivative of a model by its inputs, as a graph that `tuner.tune_model` takes.

    `source` is the path of an .onnx file, whose inputs' named extents `shapes` and values
    `inputs` give as of `tuner.tune_model`, a `torch.export.ExportedProgram`, or a graph
    that this function gave. `wrt` names an input or several; by default all that have a
    derivative. Constants have none: a weight that is trained must be an input of the model.

    The graph's inputs are the model's, then `dy` for each output `y` of floats: the
    derivative of a loss by it, of its shape and dtype. Its outputs are `dx` of the shape
    and dtype of `x` for each input `x` in `wrt`. `labels` has these names in order.

    Raises UsageError for a source that is no model, and ModelRefused: for a model that
    cannot be read, an input that does not exist or has no derivative, a loop or branch on
    the way from the inputs to the outputs, outputs whose extents are computed, and an
    operator whose derivative is beyond the limits of one program.
    """
    wrt = (wrt,) if isinstance(wrt, str) else wrt
    if isinstance(source, str | Path):
        return backward(import_file(Path(source), shapes, inputs), wrt)
    if shapes or inputs:
        raise UsageError(
            f"shapes {dict(shapes or {})} and inputs {[*(inputs or {})]} belong to an .onnx file"
        )
    if isinstance(source, Graph):
        return backward(source, wrt)
    if is_exported_program(source):
        return backward(read_exported(source), wrt)
    kind = f"{type(source).__module__}.{type(source).__qualname__}"
    raise UsageError(
        f"a {kind} is no model; give the path of an .onnx file, a "
        f"torch.export.ExportedProgram, or what tuner.grad_model gave"
    )
