"""Runs a model's library on a GPU in a process of its own: outputs, and times of calls.

The process is `python -m tuner.models.executors.cuda_checking`. A context of CUDA belongs to one
process and does not survive its fork, so no other process of ours has one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tuner.measure.gpu.runner import GpuLane
from tuner.models.arrays import Array, arrays_from, arrays_to, bits, plain_values
from tuner.models.errors import ModelRefused
from tuner.models.executors.checking import LEAST, LONGEST_S, SAMPLE_S, SAMPLES, Checked
from tuner.models.process import ConfinedRequest, answer_of, serve
from tuner.runtime.cuda_driver import VISIBLE, CudaError, Device, NoDriver
from tuner.runtime.cuda_loader import ArrayError, CudaLibrary, CudaLibraryError, CudaModelFunction
from tuner.workload.arrays import numpy_dtype

PROFILES = 5  # of which the median counts


def run_cuda_library(
    path: Path, symbol: str, inputs: Sequence[Array], lane: GpuLane
) -> tuple[Checked, tuple[float, ...]]:
    """Calls a model's function of a library on a GPU.

    Returns its outputs and times, and the seconds of each step by itself. Raises
    ModelRefused where the call fails.
    """
    request = {
        "library": str(path),
        "symbol": symbol,
        "ordinal": lane.ordinal,
        "visible": lane.visible,
    }
    *outputs, samples, steps = arrays_from(
        answer_of("tuner.models.executors.cuda_checking", request, arrays_to(inputs))
    )
    checked = Checked(outputs=tuple(outputs), samples_s=tuple(map(float, samples)))
    return checked, tuple(map(float, steps))


def _answer(request: ConfinedRequest, payload: memoryview) -> bytes:
    """The outputs of a call on the payload's arrays, then the samples, then the steps."""
    symbol = request["symbol"]
    if request["visible"]:
        os.environ[VISIBLE] = request["visible"]  # before the driver is opened
    try:
        device = Device(request["ordinal"])
        function = CudaLibrary(request["library"]).model(symbol)
        inputs = [
            bits(np.asarray(array, numpy_dtype(argument["dtype"])))
            for array, argument in zip(arrays_from(payload), function.inputs, strict=True)
        ]
        outputs = function.host(*inputs)
        addresses = _uploaded(device, function, inputs)
        samples = _samples(device, function, addresses)
        device.wait()
        steps = np.median(
            [function.times(addresses, device.stream) for _ in range(PROFILES)], axis=0
        )
    except (NoDriver, CudaError, CudaLibraryError, ArrayError) as error:
        raise ModelRefused(f"{symbol} failed: {error}") from error
    values = [
        plain_values(array, argument["dtype"])
        for array, argument in zip(outputs, function.outputs, strict=True)
    ]
    return arrays_to([*values, np.array(samples), np.array(steps, np.float64)])


def _uploaded(device: Device, function: CudaModelFunction, inputs: Sequence[Array]) -> list[int]:
    """Addresses of the inputs, which are on the device then, and of room for the outputs."""
    addresses = []
    for array in inputs:
        addresses.append(device.allocate(array.nbytes))
        device.upload(addresses[-1], array)
    for argument in function.outputs:
        size = int(np.prod(argument["shape"], dtype=np.int64))
        addresses.append(device.allocate(size * numpy_dtype(argument["dtype"]).itemsize))
    return addresses


def _samples(device: Device, function: CudaModelFunction, addresses: Sequence[int]) -> list[float]:
    """Mean seconds of a call on device addresses, of several calls in a row each."""

    def calls(count: int) -> float:
        def work() -> None:
            for _ in range(count):
                function.launch(addresses, device.stream)

        return device.seconds(work) / count

    calls(1)  # the graph is told of these addresses, and is uploaded
    once = max(min(calls(1) for _ in range(LEAST)), 1e-9)
    count = max(1, round(SAMPLE_S / once))
    samples = min(max(int(LONGEST_S / (count * once)), LEAST), SAMPLES)
    return [calls(count) for _ in range(samples)]


if __name__ == "__main__":
    serve(_answer, confined=False)
