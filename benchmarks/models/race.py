"""Race a model's exported library against the runtimes that are installed, in turn.

A runtime is imported where its call is prepared: one that is missing is left out.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Call = Callable[[], object]

ROUNDS = 15
SAMPLE_S = 0.1  # of calls in one round, at least
LOOK_S = 0.02  # between two looks at whether threads of this process still run
IDLE = 0.1  # part of that time which they may run
PATIENCE_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Raced:
    medians_s: Mapping[str, float]  # of a call: "ours", and each rival's
    missing: Mapping[str, str]  # rivals that could not run, with why


def loaded(directory: Path, name: str) -> ModuleType:
    """The exported Python package."""
    spec = importlib.util.spec_from_file_location(name, directory / name / "__init__.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def race(ours: Call, rivals: Mapping[str, Callable[[], Call]], cores: Sequence[int]) -> Raced:
    """Medians of interleaved samples, in this process on the given cores.

    `rivals` prepare their calls; one that raises is left out, and said so.
    """
    os.sched_setaffinity(0, cores)
    calls, missing = {"ours": ours}, {}
    for name, prepare in rivals.items():
        try:
            calls[name] = prepare()
            calls[name]()
        except Exception as error:  # whatever a rival does must not end the race
            missing[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
            calls.pop(name, None)
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        sample(call)
    for _ in range(ROUNDS):
        for name, call in calls.items():
            settle()
            call()
            samples[name].append(sample(call))
    medians = {name: float(np.median(times)) for name, times in samples.items()}
    return Raced(medians_s=medians, missing=missing)


def settle() -> None:
    """Waits until no thread of this process runs.

    Those of a runtime go on spinning after its calls, for as long as tens of milliseconds,
    on cores that the threads of the next one need.
    """
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        before_s = time.process_time()
        time.sleep(LOOK_S)
        if time.process_time() - before_s < IDLE * LOOK_S:
            break


def sample(call: Call) -> float:
    """Seconds of a call, the mean of as many as take `SAMPLE_S`."""
    count, started = 0, time.perf_counter()
    while True:
        call()
        count += 1
        elapsed = time.perf_counter() - started
        if elapsed >= SAMPLE_S:
            return elapsed / count


def library_call(package: Any, symbol: str, feeds: Sequence[Array], threads: int) -> Call:
    """A call of the library on arrays that are bound once, as the rivals' are."""
    if threads > 1:
        package.set_num_threads(threads)
    function = getattr(package, symbol)
    return lambda: function(*feeds)


def onnxruntime_call(content: bytes, feeds: Sequence[Array], threads: int) -> Call:
    onnxruntime = importlib.import_module("onnxruntime")

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for argument, array in zip(session.get_inputs(), feeds, strict=True):
        binding.bind_cpu_input(argument.name, array)
    for output in session.get_outputs():
        binding.bind_output(output.name)
    return lambda: session.run_with_iobinding(binding)


def openvino_call(
    path: Path,
    feeds: Sequence[Array],
    threads: int,
    precision: str = "f32",
    properties: Mapping[str, str] | None = None,
) -> Call:
    """In float32 unless told otherwise: by itself it takes bfloat16 where the machine has it."""
    openvino = importlib.import_module("openvino")

    options = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision,
        **(properties or {}),
    }
    compiled = openvino.Core().compile_model(path, "CPU", options)
    request = compiled.create_infer_request()
    for place, array in enumerate(feeds):
        request.set_input_tensor(place, openvino.Tensor(array))
    call: Call = request.infer
    return call


def eager_call(network: Any, inputs: Sequence[Any], threads: int) -> Call:
    torch = importlib.import_module("torch")

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    return lambda: network(*inputs)


def inductor_call(network: Any, inputs: Sequence[Any], threads: int) -> Call:
    torch = importlib.import_module("torch")

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    compiled = torch.compile(network, mode="max-autotune-no-cudagraphs", dynamic=False)
    return lambda: compiled(*inputs)
