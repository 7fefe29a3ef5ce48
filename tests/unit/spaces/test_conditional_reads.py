"""Kernels of programs whose reads only a condition keeps inside compute the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.checked_kernels import check_programs
from tests.support.targets import ZEN5
from tuner.spaces.by_target import space_of
from tuner.workload.spec import workload_from_notation


@pytest.mark.parametrize(
    "text",
    [
        "kernel roll(X: f32[19, 40]) -> (Y: f32[19, 40]) {"
        " Y[i, j] = where(i < 3, X[i + 16, j], X[i - 3, j]) }",
        "kernel band(X: f32[37], F: f32[5, 24]) -> (Y: f32[37, 24]) {"
        " Y[i, k] += where(i >= r, X[i - r], 0) * F[r, k] }",
        "kernel gather(W: f32[10, 24], I: i32[13]) -> (Y: f32[13, 24]) {"
        " Y[n, d] = where(0 <= I[n] and I[n] < 10, W[I[n], d], -1) }",
    ],
)
def test_kernels_compute_the_same(text: str) -> None:
    workload = workload_from_notation(text, {})
    space = space_of(workload, ZEN5, threads=1)
    points = space.space.sample(np.random.default_rng(5), 4)
    check_programs(workload, [space.program(space.space.config(point)) for point in points])
