"""Runs of kernels on callers' arrays on a GPU, each in a process of its own.

A kernel that hangs or breaks the device ends its process and nothing else.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict

from tuner.errors import UsageError
from tuner.measure.execution import Execution
from tuner.measure.gpu.runner import GpuLane, device_environment
from tuner.measure.gpu.session import failed
from tuner.measure.outcome import Failed, FailureKind
from tuner.measure.wire import Document, Late, WireError, receive, send

KILLED_S = 10.0  # for a process whose kernel the driver must stop first


def execute(lane: GpuLane, execution: Execution, *, arrays_timeout_s: float) -> Failed | None:
    """Run a kernel once on a caller's arrays, with arrays in the host's memory.

    It may take the execution's timeout and `arrays_timeout_s` for moving its arrays and
    waiting for the device. Returns the failure, or None when the outputs are written.
    Raises UsageError for arrays that it does not take.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tuner.measure.gpu.call", str(lane.ordinal)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        cwd="/",
        env=device_environment(lane),
    )
    try:
        answer = _answer(process, execution, execution.timeout_s + arrays_timeout_s)
    finally:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(KILLED_S)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
    if "refused" in answer:
        raise UsageError(str(answer["refused"]))
    if "failed" in answer:
        kind, message = answer["failed"]["kind"], answer["failed"]["message"]
        return Failed(kind=FailureKind(kind), message=str(message))
    return None


def _answer(process: subprocess.Popen[bytes], execution: Execution, limit_s: float) -> Document:
    """What the process answers within the time, or how it ended without an answer."""
    assert process.stdin is not None and process.stdout is not None
    deadline, stage = time.monotonic() + limit_s, "starting"
    try:
        send(process.stdin.fileno(), {"execution": asdict(execution)})
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            answer = receive(process.stdout.fileno(), timeout_s=left_s)
            if answer is None:
                raise WireError(_ended(process))
            if "stage" not in answer:
                return answer
            stage = str(answer["stage"])
    except Late:
        return failed(FailureKind.RUN_TIMEOUT, f"no answer within {limit_s:g} s while {stage}")
    except WireError as error:
        return failed(FailureKind.RUN_CRASH, f"{error} while {stage}")


def _ended(process: subprocess.Popen[bytes]) -> str:
    """How a process ended that has closed its end, in words."""
    try:
        return f"the process ended with status {process.wait(KILLED_S)}"
    except subprocess.TimeoutExpired:
        return f"the process closed its end and was there {KILLED_S:g} s later"
