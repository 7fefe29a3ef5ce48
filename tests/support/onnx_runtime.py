"""ONNX Runtime as a reference for files of integers."""

from __future__ import annotations

from typing import Any

import onnxruntime

# Else sums of two 8-bit products saturate at 16 bits on a CPU without VNNI.
_EXACT = ("session.x64quantprecision", "1")


def runtime_session(content: bytes) -> Any:
    """A session on the CPU that says nothing of what it does slowly."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry(*_EXACT)
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
