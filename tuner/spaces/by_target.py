"""The space of a workload on a target, whichever kind that is."""

from __future__ import annotations

from tuner.spaces.cpu.space import CpuSpace
from tuner.spaces.cuda.space import CudaSpace
from tuner.target.target import Target
from tuner.workload.workload import Workload

TargetSpace = CpuSpace | CudaSpace


def space_of(workload: Workload, target: Target, threads: int) -> TargetSpace:
    """`threads` count cores; kernels for a GPU have no use for them."""
    return (
        CudaSpace(workload, target)
        if target.kind == "cuda"
        else CpuSpace(workload, target, threads)
    )
