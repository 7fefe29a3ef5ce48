"""A checked ONNX model evaluated operator by operator in NumPy, each value at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_conv import Conv as ReferenceConv

from tuner.models.arrays import Array
from tuner.models.errors import ModelRefused
from tuner.models.evaluator.older_operators import operators_of
from tuner.models.files.onnx_file import opset_of
from tuner.models.reference.onnx_evaluation import FAULTS, GatherElements

Values = dict[str, Any]


class Conv(OpRun):  # type: ignore[misc]  # onnx has no types
    """Of images, several times as fast as the evaluator's own."""

    def _run(self, x: Array, w: Array, b: Array | None = None, **given: Any) -> tuple[Array]:
        dilations = given["dilations"] or [1, 1]
        if x.ndim != 4 or given["auto_pad"] != "NOTSET" or [*dilations] != [1, 1]:
            result: tuple[Array] = ReferenceConv._run(self, x, w, b, **given)
            return result
        top, left, bottom, right = given["pads"] or [0] * 4
        down, along = given["strides"] or [1, 1]
        padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
        windows = sliding_window_view(padded, w.shape[2:], (2, 3))[:, :, ::down, ::along]
        groups = given["group"] or 1
        n, _, h, width = windows.shape[:4]
        if groups == x.shape[1] == w.shape[0]:  # depthwise
            y = np.einsum("nchwij,cij->nchw", windows, w[:, 0])
        else:
            # Rows of places for each group, of channels and window.
            rows = windows.reshape(n, groups, -1, h, width, *w.shape[2:])
            rows = rows.transpose(1, 0, 3, 4, 2, 5, 6).reshape(groups, n * h * width, -1)
            filters = w.reshape(groups, w.shape[0] // groups, -1)
            y = (rows @ filters.transpose(0, 2, 1)).reshape(groups, n, h, width, -1)
            y = y.transpose(1, 0, 4, 2, 3).reshape(n, w.shape[0], h, width)
        if b is not None:
            y = y + b.reshape(1, -1, 1, 1)
        return (y.astype(x.dtype),)


class Network:
    """`constants` has what does not depend on inputs, by name."""

    def __init__(self, model: Any) -> None:
        operators = [*operators_of(opset_of(model)), GatherElements, Conv]
        try:
            self._evaluator = ReferenceEvaluator(model, new_ops=operators)
        except FAULTS as error:
            raise _not_evaluated(error) from error
        self.outputs = [value.name for value in model.graph.output]
        self.constants: Values = {"": None, **self._evaluator.rt_inits_}
        self._nodes = []
        for node in self._evaluator.rt_nodes_:
            if node.need_context() or not all(name in self.constants for name in node.input):
                self._nodes.append(node)
            else:
                self._run(node, self.constants)

    def run(self, inputs: Mapping[str, Array], before: Values | None = None) -> Values:
        """Every value by name. `before` has those of another model, from whose operators
        this one's differ only where they read what it has not, or what is new."""
        values = {**self.constants, **inputs}
        changed = set[str]()
        for node in self._nodes:
            if (
                before is not None
                and all(name in before for name in node.output)
                and all(name in before and name not in changed for name in node.input)
                and not node.need_context()
            ):
                values |= {name: before[name] for name in node.output}
                continue
            self._run(node, values)
            changed |= {*node.output}
        return values

    def results(self, values: Values) -> list[Array]:
        return [np.asarray(values[name]) for name in self.outputs]

    def _run(self, node: Any, values: Values) -> None:
        given: Sequence[Any] = [values[name] for name in node.input]
        try:
            with np.errstate(all="ignore"):
                context = {"context": values} if node.need_context() else {}
                results = node.run(*given, **context)
        except FAULTS as error:
            raise _not_evaluated(error) from error
        values |= zip(node.output, results, strict=False)


def _not_evaluated(error: BaseException) -> ModelRefused:
    text = f"{type(error).__name__}: {error}"[:400]
    return ModelRefused(f"the network cannot be evaluated for calibration: {text}")
