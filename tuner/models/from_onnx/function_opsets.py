"""Opsets of a model's functions, before they are inlined."""

from __future__ import annotations

from typing import Any

import onnx

from tuner.models.files.onnx_file import nodes_of

_STANDARD = ("", "ai.onnx")


def declare_alike(model: Any) -> None:
    """Gives functions the model's opset where all their operators are the same in both, in place:
    the inliner converts others, for which it must know the type of each argument."""
    opsets = (entry.version for entry in model.opset_import if entry.domain in _STANDARD)
    opset = max(opsets, default=0)
    for function in model.functions:
        for entry in function.opset_import:
            if entry.domain in _STANDARD and all(
                _version(node.op_type, entry.version) == _version(node.op_type, opset) is not None
                for node in nodes_of(function)
                if node.domain in _STANDARD
            ):
                entry.version = opset


def _version(op: str, opset: int) -> int | None:
    """The opset since which an operator is as it is in another one."""
    try:
        return int(onnx.defs.get_schema(op, opset, "").since_version)
    except onnx.defs.SchemaError:
        return None
