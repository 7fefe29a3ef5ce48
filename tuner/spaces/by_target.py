"""The space of a workload on a target, by the target's kind.

Where the kind is certain, `cpu_space` and `gpu_space` also say what the sketches are.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.spaces.core.target_space import SketchCatalogue, TargetSpace
from tuner.spaces.cpu.catalogue import CPU_SKETCHES
from tuner.spaces.cpu.facts import LoopNestFacts
from tuner.spaces.cuda.catalogue import CUDA_SKETCHES
from tuner.spaces.cuda.facts import KernelFacts
from tuner.target.target import Target
from tuner.workload.workload import Workload

CATALOGUES: Mapping[str, SketchCatalogue[object]] = {"cpu": CPU_SKETCHES, "cuda": CUDA_SKETCHES}


def space_of(workload: Workload, target: Target, threads: int) -> TargetSpace[object]:
    """`threads` count cores; kernels for a GPU have no use for them."""
    return TargetSpace(workload, target, threads, CATALOGUES[target.kind])


def cpu_space(workload: Workload, target: Target, threads: int) -> TargetSpace[LoopNestFacts]:
    """The space on a CPU, as its cost model takes it."""
    return TargetSpace(workload, target, threads, CPU_SKETCHES)


def gpu_space(workload: Workload, target: Target) -> TargetSpace[KernelFacts]:
    """The space on a GPU, as its cost model takes it."""
    return TargetSpace(workload, target, 1, CUDA_SKETCHES)
