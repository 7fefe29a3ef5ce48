"""CUDA sources of sampled configs."""

from __future__ import annotations

import zlib

import numpy as np

from tests.support.spaces import shared_space
from tuner.lowering.cuda.codegen import cuda_kernels
from tuner.target.cuda import cuda_target


def sources(spec: str, arch: str, count: int) -> list[str]:
    target = cuda_target(arch, lambda fingerprint: "declared")
    space = shared_space(spec, target)
    rng = np.random.default_rng(zlib.crc32(spec.encode()))
    return [
        cuda_kernels(space.program(space.space.config(point)), target, "k").text
        for point in space.space.sample(rng, count)
    ]
