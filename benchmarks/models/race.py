"""Race a model's exported library against ONNX Runtime, in turn on one core."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from benchmarks.models.nets import Array

ROUNDS = 31
SAMPLE_S = 20e-3  # of calls in one round, at least


@dataclass(frozen=True, kw_only=True)
class Raced:
    ours_s: float  # median seconds of a call
    theirs_s: float
    error: float  # of ours against theirs, relative to the greatest value


def race(
    content: bytes, directory: Path, name: str, feeds: Mapping[str, Array], core: int
) -> Raced:
    """Both run in this process, on one thread, on the given core."""
    os.sched_setaffinity(0, {core})
    package = loaded(directory, name)
    symbol = f"{name}_run"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, dict(feeds))
    ours = getattr(package, symbol)(*feeds.values())
    error = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    binding = session.io_binding()
    for key, array in feeds.items():
        binding.bind_cpu_input(key, array)
    for output in session.get_outputs():
        binding.bind_output(output.name)
    arrays = [*(_aligned(package, array) for array in feeds.values()), _aligned(package, ours)]

    def call_ours(count: int) -> float:
        return float(package.library.time(symbol, arrays, count, 1)[0])

    def call_theirs(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            session.run_with_iobinding(binding)
        return (time.perf_counter() - started) / count

    counts = [
        max(1, round(SAMPLE_S / min(call(1) for _ in range(3))))
        for call in (call_ours, call_theirs)
    ]
    samples = [(call_ours(counts[0]), call_theirs(counts[1])) for _ in range(ROUNDS)]
    ours_s, theirs_s = (float(np.median([sample[place] for sample in samples])) for place in (0, 1))
    return Raced(ours_s=ours_s, theirs_s=theirs_s, error=error)


def _aligned(package: Any, array: Array) -> Array:
    made: Array = package.loader.aligned_empty(array.shape, array.dtype)
    made[...] = array
    return made


def loaded(directory: Path, name: str) -> Any:
    """The exported Python package."""
    spec = importlib.util.spec_from_file_location(name, directory / name / "__init__.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
