"""CUDA sources of sampled configs."""

from __future__ import annotations

import zlib

import numpy as np

from tuner.lowering.cuda.codegen import cuda_source
from tuner.spaces.by_target import space_of
from tuner.target.cuda import cuda_target
from tuner.workload.spec import parse_spec


def sources(spec: str, arch: str, count: int) -> list[str]:
    target = cuda_target(arch, lambda fingerprint: "declared")
    space = space_of(parse_spec(spec), target, 1)
    rng = np.random.default_rng(zlib.crc32(spec.encode()))
    return [
        cuda_source(space.program(space.space.config(point)), target, "k")
        for point in space.space.sample(rng, count)
    ]
