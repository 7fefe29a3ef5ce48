"""The space of a workload on a target, whichever kind that is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.spaces.core.target_space import SketchCatalogue, TargetSpace
from tuner.spaces.cpu.catalogue import CPU_SKETCHES
from tuner.spaces.cuda.catalogue import CUDA_SKETCHES
from tuner.target.target import Target
from tuner.workload.workload import Workload

CATALOGUES: Mapping[str, SketchCatalogue[Any]] = {"cpu": CPU_SKETCHES, "cuda": CUDA_SKETCHES}


def space_of(workload: Workload, target: Target, threads: int) -> TargetSpace[Any]:
    """`threads` count cores; kernels for a GPU have no use for them."""
    return TargetSpace(workload, target, threads, CATALOGUES[target.kind])
