"""The executor of a device: models for a declared CPU, called by the agent there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tuner.measure.assignment import Lane
from tuner.measure.device.runner import DeviceRunner
from tuner.models.executors.cpu_executor import CpuExecutor
from tuner.models.executors.device_calls import DeviceCalls
from tuner.runtime.link import toolchain_for
from tuner.target.target import Target


@contextmanager
def device_executor(
    lane: Lane, target: Target, threads: int, isolation: str
) -> Iterator[CpuExecutor]:
    """An executor on a device's lane for the block, on as many of the cores as there are.

    Raises UsageError for an isolation that the device does not have, LinkError without a
    compiler for the target, and DeviceError.
    """
    assert lane.device is not None, "the lane of a device has one"
    tools = toolchain_for(target)
    with DeviceRunner(lane.device) as runner:
        runner.isolate(isolation)
        yield CpuExecutor(DeviceCalls(runner, min(threads, len(lane.cores))), tools)
