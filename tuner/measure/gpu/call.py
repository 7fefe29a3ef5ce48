"""One run of a kernel on a caller's arrays, in a process that owns the device.

Run as `python -m tuner.measure.gpu.call ORDINAL`; JSON messages on standard input and
output. It waits until nothing is timed on the device. Nothing is forked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tuner.errors import UsageError
from tuner.measure.execution import (
    Execution,
    SharedOutputs,
    execution_from_document,
    read_inputs,
)
from tuner.measure.gpu.parent import own_output
from tuner.measure.gpu.session import attempt, failed
from tuner.measure.gpu.turns import turn
from tuner.measure.outcome import FailureKind
from tuner.measure.sandbox.fence import die_with
from tuner.measure.wire import Document, WireError, receive, send
from tuner.runtime.cuda_driver import CudaError, Device, NoDriver, device_facts
from tuner.runtime.cuda_loader import CudaLibrary

Array = NDArray[np.generic]


def call(ordinal: int, execution: Execution, stage: Callable[[str], None]) -> Document:
    """{"done": true}, {"refused": why} for arrays that the kernel does not take, or {"failed"}."""
    stage("reading the inputs")
    try:
        inputs = read_inputs(execution.inputs, execution.takes)
    except UsageError as error:
        return {"refused": str(error)}
    stage("opening the device")
    try:
        device, facts = Device(ordinal), device_facts(ordinal)
    except (NoDriver, CudaError) as error:
        return failed(FailureKind.INFRASTRUCTURE, f"gpu:{ordinal} cannot be used: {error}")
    stage("waiting for what is timed on the device")
    with turn(facts):
        return attempt(partial(_computed, device, execution, inputs, stage))[0]


def _computed(
    device: Device, execution: Execution, inputs: Sequence[Array], stage: Callable[[str], None]
) -> Document:
    """Calls the function once and writes its outputs; the process's end frees its buffers."""
    stage("loading")
    function = CudaLibrary(execution.library).function(execution.symbol)
    with SharedOutputs(execution.gives) as outputs:
        addresses = [device.allocate(array.nbytes) for array in (*inputs, *outputs.arrays.values())]
        for address, array in zip(addresses, inputs, strict=False):
            device.upload(address, array)
        stage("running")
        function.launch(addresses, device.stream)
        device.wait()
        stage("handing back the outputs")
        results = addresses[len(inputs) :]
        for address, array in zip(results, outputs.arrays.values(), strict=True):
            array[...] = device.download(address, array.shape, array.dtype)
        outputs.write(execution.outputs, execution.bounded)
    return {"done": True}


def main(ordinal: int, commands: int, answers: int) -> int:
    def stage(text: str) -> None:
        send(answers, {"stage": text})

    try:
        message = receive(commands)
        if message is not None:
            send(answers, call(ordinal, execution_from_document(message["execution"]), stage))
    except WireError:
        return 1  # whoever started this has gone
    return 0


if __name__ == "__main__":
    die_with(os.getppid())
    sys.exit(main(int(sys.argv[1]), *own_output()))
