"""ONNX Runtime's calls: runs of a session, with the model's file and the inputs' shapes."""

from __future__ import annotations

import os
import random
import time
from typing import Any

from .arguments import array
from .output import Output

SHORT_NS = 400_000  # of runs below, only one of SAMPLED is looked at
SAMPLED = 16


def record(onnxruntime: Any, output: Output) -> None:
    """Begins to record, by a method of the class that sessions have."""
    session_class = onnxruntime.InferenceSession
    original, begun = session_class.run, session_class.__init__
    slots: dict[Any, int] = {}
    last_ns: dict[str, int] = {}

    def initialised(self: Any, path_or_bytes: Any, *arguments: Any, **named: Any) -> None:
        begun(self, path_or_bytes, *arguments, **named)
        is_path = not isinstance(path_or_bytes, (bytes, bytearray, memoryview))
        self._tuner_model = _absolute(path_or_bytes) if is_path else None

    def run(self: Any, output_names: Any, input_feed: Any, run_options: Any = None) -> Any:
        model = getattr(self, "_tuner_model", None)
        weight = 1 if last_ns.get(model or "", SHORT_NS) >= SHORT_NS else SAMPLED
        if weight > 1 and random.getrandbits(4):
            return original(self, output_names, input_feed, run_options)
        start = time.perf_counter_ns()
        results = original(self, output_names, input_feed, run_options)
        spent = time.perf_counter_ns() - start
        last_ns[model or ""] = spent
        try:
            _count(output, slots, model, input_feed, weight, spent)
        except Exception:
            return results
        return results

    session_class.__init__ = initialised
    session_class.run = run


def _count(
    output: Output, slots: dict[Any, int], model: str | None, feed: Any, weight: int, spent: int
) -> None:
    key = (model, *((name, value.shape, value.dtype.num) for name, value in feed.items()))
    slot = slots.get(key)
    if slot is None:
        inputs = [{"name": str(name), **array(value)} for name, value in feed.items()]
        slot = output.describe(
            {
                "library": "onnxruntime",
                "operator": "InferenceSession.run",
                "arguments": [{"name": "model", "value": model}, *inputs],
            }
        )
        slots[key] = slot
    if slot:
        output.add(slot, weight, weight * spent)


def _absolute(path: Any) -> str:
    return os.path.abspath(os.fsdecode(path))
