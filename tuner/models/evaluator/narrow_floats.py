"""ONNX's reference evaluator on float16 and bfloat16: each operator computed in float32.

The evaluator computes in the dtypes that it is given. A layer norm of float16 squares in
float16 then, where 256² is infinite, though the standard computes it in float32. Here
each operator of the graph gets its inputs as float32, and its results are rounded once to
the dtypes that the graph declares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto

Array = np.ndarray[Any, np.dtype[Any]]
_NARROW: Mapping[int, np.dtype[Any]] = {
    TensorProto.FLOAT16: np.dtype(np.float16),
    TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
}
# Operators that look at the bits, or whose bodies have operators of their own.
_AS_THEY_ARE = frozenset({"BitCast", "If", "Loop", "Scan", "SequenceMap"})


def compute_widely(evaluator: Any, graph: Any) -> None:
    """Makes the operators of an `onnx.reference.ReferenceEvaluator` compute so.

    `graph` is its `GraphProto`, with the types of all values. Without narrow floats
    nothing changes.
    """
    declared = {
        value.name: _NARROW[value.type.tensor_type.elem_type]
        for value in (*graph.input, *graph.value_info, *graph.output)
        if value.type.tensor_type.elem_type in _NARROW
    }
    constants = any(tensor.data_type in _NARROW for tensor in graph.initializer)
    if not declared and not constants:
        return
    for node in evaluator.rt_nodes_:
        if node.op_type not in _AS_THEY_ARE:
            node.run = _widely(node.run, [declared.get(name) for name in node.output])


def _widely(
    run: Callable[..., tuple[Any, ...]], dtypes: list[np.dtype[Any] | None]
) -> Callable[..., tuple[Any, ...]]:
    """The operator with wide inputs, its results in the declared dtypes."""

    def computed(*inputs: Any, **options: Any) -> tuple[Any, ...]:
        results = run(*(_wide(value) for value in inputs), **options)
        return tuple(
            value if dtype is None else np.asarray(value).astype(dtype)
            for value, dtype in zip(results, dtypes, strict=False)
        )

    return computed


def _wide(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype in _NARROW.values():
        return value.astype(np.float32)
    return value
