"""The GPUs that this process may use, each as a lane with its target.

A process sees one slice of a partitioned GPU (MIG) at most, the one that its environment
names. So a slice is a lane whose processes are started with its name, and its facts are
those that such a process tells.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from tuner.measure.gpu.runner import GpuLane, GpuRunner
from tuner.runtime.cuda_driver import VISIBLE, device_count
from tuner.runtime.nvml import Partition, partitions
from tuner.target.detect import detect_gpu, detected_gpu
from tuner.target.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleGpu:
    """A GPU, or a slice of one."""

    lane: GpuLane
    target: Target  # without measured limits


def visible_gpus() -> tuple[VisibleGpu, ...]:
    """The devices of this machine, whole ones in the driver's order.

    Raises NoDriver where there is no driver, GpuRunnerError where a slice cannot be asked.
    """
    slices = _slices(os.environ.get(VISIBLE), partitions())
    if not slices:
        return tuple(
            VisibleGpu(lane=GpuLane(ordinal=number), target=detect_gpu(number))
            for number in range(device_count())
        )
    return tuple(VisibleGpu(lane=lane, target=_target_of(lane)) for lane in slices)


def _slices(named: str | None, present: tuple[Partition, ...]) -> tuple[GpuLane, ...]:
    """A lane for each slice, and for each whole GPU beside them; none without slices.

    `named` is what the environment makes visible, None where it says nothing.
    """
    listed = None if named is None else [name.strip() for name in named.split(",")]
    if listed is not None:
        present = tuple(part for part in present if part.uuid in listed)
    if not any(part.slice is not None for part in present):
        return ()
    return tuple(
        GpuLane(
            called=f"gpu:{part.gpu}" + ("" if part.slice is None else f".{part.slice}"),
            visible=part.uuid,
        )
        for part in present
    )


def _target_of(lane: GpuLane) -> Target:
    with GpuRunner(lane) as runner:
        runner.start()
        return detected_gpu(runner.facts)
