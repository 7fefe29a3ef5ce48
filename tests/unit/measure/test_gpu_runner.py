"""A GPU's runner: without one it says why, and the parts that need none are right; with
one, every kind of fault."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.cuda_modules import cuda_headers
from tests.support.gpu_machine import REASON, needs_gpu
from tests.support.gpu_requests import WORKLOAD, request
from tests.support.targets import SM_80, SM_90
from tuner.errors import UsageError
from tuner.measure.assignment import Request
from tuner.measure.check import WrongAnswer
from tuner.measure.execution import Execution
from tuner.measure.gpu.caller import execute
from tuner.measure.gpu.runner import GpuLane, GpuRunner, GpuRunnerError
from tuner.measure.gpu.session import attempt
from tuner.measure.outcome import Failed, FailureKind, Timed
from tuner.measure.timing import TimingPlan
from tuner.measure.wire import Document
from tuner.runtime.cuda_driver import (
    ATTRIBUTES,
    LATER_PROTOTYPES,
    OUT_OF_MEMORY,
    PROTOTYPES,
    STICKY,
    CudaError,
    NoDriver,
)
from tuner.runtime.cuda_loader import CudaLibraryError
from tuner.target.capability import serves
from tuner.target.detect import detect_gpu, parse_target
from tuner.target.nvidia import gpu_fingerprint, gpu_target
from tuner.workload.spec import parse_spec

without_gpu = pytest.mark.skipif(REASON is None, reason="there is a GPU")
# As the driver gives them for an H100 SXM, from NVIDIA's published tables.
FACTS: dict[str, int | str] = {
    "name": "NVIDIA H100 80GB HBM3", "memory_bytes": 80 << 30, "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152, "warp_size": 32, "registers_per_block": 65536,
    "clock_khz": 1980000,
    "multiprocessors": 132, "memory_clock_khz": 2619000, "memory_bus_bits": 5120,
    "l2_bytes": 50 << 20, "capability_major": 9,
    "capability_minor": 0, "shared_bytes_per_multiprocessor": 228 << 10,
    "registers_per_multiprocessor": 65536,
    "max_dynamic_shared_memory_per_block": 227 << 10,
}  # fmt: skip


@without_gpu
def test_a_machine_without_a_gpu_says_why() -> None:
    with (
        pytest.raises(GpuRunnerError, match=r"gpu:0 cannot be used: this machine"),
        GpuRunner() as runner,
    ):
        runner.start()
    with pytest.raises(GpuRunnerError, match="gpu:3"), GpuRunner(GpuLane(ordinal=3)) as runner:
        runner.prepare(parse_spec("softmax:M=2,N=3"))
    with pytest.raises(NoDriver, match=r"this machine has no .* or a declared GPU \(cuda:sm_"):
        parse_target("cuda")


def test_a_runner_without_a_workload_is_refused() -> None:
    with pytest.raises(GpuRunnerError, match="prepare one first"), GpuRunner() as runner:
        runner.measure(Request(name="x", library="x", symbol="k"))


def test_what_the_driver_says_becomes_a_target_that_serves_the_declared_one() -> None:
    fingerprint = gpu_fingerprint(FACTS, "580.82")
    target = gpu_target(FACTS, "580.82", key="k", fingerprint=fingerprint)
    assert (target.tvm["arch"], target.cores, target.l2_bytes) == ("sm_90", 132, 50 << 20)
    assert "H100" in target.name and "580.82" in target.name
    assert serves(target, SM_90) and not serves(target, SM_80)


@pytest.mark.parametrize("timeout_s", [0.0004, 0.0014])
def test_a_call_that_gives_no_answer_in_time_has_timed_out(timeout_s: float) -> None:
    """Within a part of a millisecond, which a process cannot even start in."""
    call = Execution(
        library="l", symbol="k", takes=(), gives=(), inputs="i", outputs="o", timeout_s=timeout_s
    )
    failed = execute(GpuLane(), call, arrays_timeout_s=0.0)
    assert failed is not None and failed.kind is FailureKind.RUN_TIMEOUT
    assert failed.message == f"no answer within {timeout_s:g} s while starting"


def raising(error: Exception) -> Callable[[], Document]:
    def work() -> Document:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "kind", "ended"),
    [
        (WrongAnswer("no"), FailureKind.WRONG_ANSWER, False),
        (
            CudaError("cuLaunchKernel", 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "…"),
            FailureKind.RUN_CRASH,
            True,
        ),
        (
            CudaError("cuMemAlloc_v2", OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "…"),
            FailureKind.OUT_OF_MEMORY,
            False,
        ),
        (CudaLibraryError("k: cuLaunchKernel failed", 8), FailureKind.RUN_CRASH, True),
        (CudaLibraryError("k: cuMemAllocAsync failed", 6), FailureKind.OUT_OF_MEMORY, False),
        (CudaLibraryError("k: none of its 1 cubins runs", 5), FailureKind.RUN_CRASH, False),
        (MemoryError(), FailureKind.OUT_OF_MEMORY, False),
        (UsageError("what"), FailureKind.RUN_CRASH, False),
        (KeyError("k"), FailureKind.RUN_CRASH, False),
    ],
)
def test_failures_have_their_kind_and_only_a_broken_device_ends_the_process(
    error: Exception, kind: str, ended: bool
) -> None:
    answer, ends = attempt(raising(error))
    assert (answer["failed"]["kind"], ends) == (kind, ended)
    assert answer["failed"]["message"]


def cpp_type(argument: object) -> str:
    """A C++ type of a ctypes argument's size and kind."""
    name = getattr(argument, "__name__", "")
    if name.startswith("LP_") or name in ("c_void_p", "c_char_p"):
        return "void*"
    sizes = {"c_int": "int", "c_uint": "unsigned", "c_ubyte": "unsigned char", "c_ulong": "size_t"}
    return sizes.get(name, "unsigned long long")


CHECK = r"""
#include <cuda.h>
#include <type_traits>
template <class A, class B> constexpr bool alike = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;
template <class A, class B> struct same : std::false_type {};
template <class RA, class... A, class RB, class... B> requires(sizeof...(A) == sizeof...(B))
struct same<RA (*)(A...), RB (*)(B...)> : std::bool_constant<(alike<A, B> && ... && (sizeof(RA) == sizeof(RB)))> {};
"""  # noqa: E501
NAMES = {
    "max_threads_per_block": "MAX_THREADS_PER_BLOCK",
    "max_shared_memory_per_block": "MAX_SHARED_MEMORY_PER_BLOCK",
    "warp_size": "WARP_SIZE", "registers_per_block": "MAX_REGISTERS_PER_BLOCK",
    "clock_khz": "CLOCK_RATE",
    "multiprocessors": "MULTIPROCESSOR_COUNT", "memory_clock_khz": "MEMORY_CLOCK_RATE",
    "memory_bus_bits": "GLOBAL_MEMORY_BUS_WIDTH", "l2_bytes": "L2_CACHE_SIZE",
    "capability_major": "COMPUTE_CAPABILITY_MAJOR",
    "capability_minor": "COMPUTE_CAPABILITY_MINOR",
    "shared_bytes_per_multiprocessor": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "registers_per_multiprocessor": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "max_dynamic_shared_memory_per_block": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
}  # fmt: skip


@pytest.mark.skipif(
    cuda_headers() is None or shutil.which("g++") is None,
    reason="no cuda.h of a toolkit, or no C++ compiler",
)
def test_the_driver_is_called_as_nvidia_declares_it(tmp_path: Path) -> None:
    lines = [CHECK]
    for name, arguments in (*PROTOTYPES.items(), *LATER_PROTOTYPES.items()):
        plain = name.removesuffix("_v2")
        declared = f"int (*)({', '.join(map(cpp_type, arguments))})"
        lines.append(f'static_assert(same<decltype(&::{plain}), {declared}>::value, "{name}");')
    lines += [
        f"static_assert(CU_DEVICE_ATTRIBUTE_{NAMES[what]} == {number});"
        for what, number in ATTRIBUTES.items()
    ]
    sticky = (
        "ILLEGAL_ADDRESS", "LAUNCH_TIMEOUT", "ASSERT", "ILLEGAL_INSTRUCTION", "MISALIGNED_ADDRESS",
        "LAUNCH_FAILED", "INVALID_PC",
        "INVALID_ADDRESS_SPACE", "HARDWARE_STACK_ERROR", "ECC_UNCORRECTABLE",
    )  # fmt: skip
    among = " || ".join(f"CUDA_ERROR_X == {number}" for number in sorted(STICKY))
    lines += [f"static_assert({among.replace('_X', '_' + name)});" for name in sticky]
    assert len(sticky) == len(STICKY)
    (tmp_path / "agrees.cpp").write_text("\n".join(lines))
    command = ["g++", "-std=c++20", "-fsyntax-only", f"-I{cuda_headers()}", "agrees.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]


# --- with a GPU


@pytest.fixture
def runner() -> Iterator[GpuRunner]:
    with GpuRunner() as made:
        made.prepare(parse_spec(WORKLOAD))
        yield made


@needs_gpu
def test_a_right_kernel_is_timed(runner: GpuRunner, tmp_path: Path) -> None:
    asked = replace(request(tmp_path, "Y[i] = tanhf(X[i]);"), verification="promotion")
    for plan in (TimingPlan(), TimingPlan(cache="cold")):
        outcome = runner.measure(replace(asked, plan=plan))
        assert isinstance(outcome, Timed), outcome
        assert 1e-7 < outcome.median_s < 1e-3 and outcome.conditions.cache == plan.cache


@needs_gpu
@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        ("Y[i] = X[i];", FailureKind.WRONG_ANSWER, "wrong in"),
        ("if (i) Y[i] = tanhf(X[i]);", FailureKind.WRONG_ANSWER, "wrong in 1 of"),
        ("Y[i] = tanhf(X[i]); X[i] = 0;", FailureKind.WRONG_ANSWER, "changed its input"),
        (
            "Y[i] = tanhf(X[i]); if (i == 0) Y[8 * 64] = 1;",
            FailureKind.WRONG_ANSWER,
            "out of bounds",
        ),
        ("Y[i + (1LL << 44)] = X[i];", FailureKind.RUN_CRASH, "ILLEGAL_ADDRESS"),
        ("while (true) { __nanosleep(100); }", FailureKind.RUN_TIMEOUT, "no answer"),
    ],
)
def test_a_fault_is_named_and_the_next_candidate_is_measured(
    runner: GpuRunner, tmp_path: Path, body: str, kind: FailureKind, says: str
) -> None:
    outcome = runner.measure(request(tmp_path, body))
    assert isinstance(outcome, Failed) and outcome.kind is kind and says in outcome.message, outcome
    assert isinstance(runner.measure(request(tmp_path, "Y[i] = tanhf(X[i]);")), Timed)


@needs_gpu
def test_this_machines_gpu_is_detected() -> None:
    target = detect_gpu()
    assert (
        target.kind == "cuda"
        and np.all([target.cores > 0, target.l2_bytes > 0])
        and str(target.tvm["arch"]).startswith("sm_")
    )
