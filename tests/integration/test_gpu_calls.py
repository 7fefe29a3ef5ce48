"""Kernels of a GPU run on callers' arrays, on the double of a device: right answers, faults
of each kind, and turns with what is timed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.device.machine import needs_compiler
from tests.support.gpu_requests import WORKLOAD, request
from tests.support.targets import SM_90
from tuner.errors import UsageError
from tuner.measure.execution import Execution
from tuner.measure.gpu.caller import execute
from tuner.measure.gpu.runner import GpuLane, GpuRunner
from tuner.measure.gpu.turns import turn
from tuner.measure.outcome import Failed, FailureKind
from tuner.workload.spec import parse_spec

pytestmark = [needs_compiler, pytest.mark.slow]
PATIENCE_S = 60.0  # for a process to start on a busy machine


def execution(folder: Path, body: str, given: NDArray[np.float32]) -> Execution:
    expression = parse_spec(WORKLOAD).expression
    inputs = folder / "inputs.npz"
    np.savez(inputs, X=given)
    library = request(folder, body, SM_90).library
    assert library is not None
    return Execution(
        library=library,
        symbol="k",
        takes=expression.inputs,
        gives=tuple(expression.tensor(name) for name in expression.outputs),
        inputs=str(inputs),
        outputs=str(folder / "outputs.npz"),
    )


def run(one: Execution) -> Failed | None:
    return execute(GpuLane(), one, arrays_timeout_s=PATIENCE_S)


def test_a_kernel_computes_on_the_arrays(gpu_double: None, tmp_path: Path) -> None:
    given = np.linspace(-3, 3, 512, dtype=np.float32).reshape(8, 64)
    assert run(execution(tmp_path, "Y[i] = tanhf(X[i]);", given)) is None
    with np.load(tmp_path / "outputs.npz") as outputs:
        (name,) = outputs.files
        np.testing.assert_allclose(outputs[name], np.tanh(given), rtol=1e-6)


def test_other_arrays_are_refused(gpu_double: None, tmp_path: Path) -> None:
    one = execution(tmp_path, "Y[i] = X[i];", np.zeros((8, 63), np.float32))
    with pytest.raises(UsageError, match="not float32"):
        run(one)


def test_a_kernel_that_breaks_the_device_ends_its_process_alone(
    gpu_double: None, tmp_path: Path
) -> None:
    zeros = np.zeros((8, 64), np.float32)
    failed = run(execution(tmp_path, "*(volatile float *)8 = Y[i] = X[i];", zeros))
    assert failed is not None and failed.kind is FailureKind.RUN_CRASH, failed
    assert run(execution(tmp_path, "Y[i] = X[i];", zeros)) is None


def test_a_kernel_that_never_ends_is_ended(gpu_double: None, tmp_path: Path) -> None:
    zeros = np.zeros((8, 64), np.float32)
    endless = execution(tmp_path, "for (;;) __nanosleep(100);", zeros)
    failed = execute(GpuLane(), replace(endless, timeout_s=10.0), arrays_timeout_s=0.0)
    assert failed is not None and failed.kind is FailureKind.RUN_TIMEOUT, failed


def test_what_is_timed_comes_first(gpu_double: None, tmp_path: Path) -> None:
    with GpuRunner() as runner:
        runner.start()
        facts = runner.facts
    one = execution(tmp_path, "Y[i] = X[i];", np.zeros((8, 64), np.float32))
    with turn(facts):
        failed = execute(GpuLane(), replace(one, timeout_s=10.0), arrays_timeout_s=0.0)
    assert failed is not None and failed.kind is FailureKind.RUN_TIMEOUT
    assert "while waiting for what is timed" in failed.message
    assert run(one) is None


def test_slices_of_a_gpu_do_not_wait_for_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    facts: dict[str, int | str] = {"pci": "0000:aa:00.0"}
    with turn(facts):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1")
        with turn(facts):
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-2")
            with turn(facts):
                pass
