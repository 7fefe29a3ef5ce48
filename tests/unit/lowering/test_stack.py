"""Where a kernel's own small buffers lie."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.support.constant_target import TARGET
from tuner.lowering.compiler import compile_program
from tuner.spaces.by_target import space_of
from tuner.workload.spec import parse_spec

MOST = 1024  # bytes that TVM keeps on the stack


@pytest.mark.parametrize("spec", ["softmax:M=8,N=48", "matmul:M=8,N=32,K=24"])
def test_small_buffers_of_a_kernel_lie_on_the_stack(spec: str) -> None:
    """Each one asked of the runtime costs as much as some dozen multiply-adds, in every call."""
    space = space_of(parse_spec(spec), TARGET, 1)
    for point in space.space.canonical(space.space.sample(np.random.default_rng(0), 3)):
        compiled = compile_program(space.program(space.space.config(point)), TARGET, "kernel")
        asked = re.findall(
            r"call ptr %\w+\(i32 1, i32 %\w+, i64 (\d+), i32 \d+, i32 \d+\)",
            compiled.sources["llvm"],
        )
        assert all(int(size) >= MOST for size in asked)
