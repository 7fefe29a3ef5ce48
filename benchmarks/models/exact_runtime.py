"""ONNX Runtime as what results are held against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime

# Else sums of two 8-bit products saturate at 16 bits on an x86 CPU without VNNI.
_EXACT = ("session.x64quantprecision", "1")


def exact_session(model: bytes | Path) -> Any:
    """A session on the CPU for the content of a file, or for its path.

    Raises what ONNX Runtime does where it does not load the model.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    options.add_session_config_entry(*_EXACT)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
