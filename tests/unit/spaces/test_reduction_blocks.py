"""Blocks of a sum's terms: of a long axis, or of one of several that are long together."""

from __future__ import annotations

import pytest

from tests.support.checked_kernels import check_kernels
from tests.support.targets import ZEN5
from tuner.spaces.by_target import space_of
from tuner.workload.spec import workload_from_notation

WEIGHTS = """kernel weights(X: f32[4, 2, W, W], G: f32[4, 16, W, W]) -> (Y: f32[16, 2, 3]) {
  Y[o, c, u] += (X[n, c, i, j + u - 1] else 0) * G[n, o, i, j] for u in 0:3
}"""


@pytest.mark.parametrize(("width", "blocks"), [(8, set()), (32, {4, 8, 16, 32})])
def test_a_convolutions_weight_gradient_has_blocks_of_pixels(width: int, blocks: set[int]) -> None:
    workload = workload_from_notation(WEIGHTS, {"W": width})
    sketches = space_of(workload, ZEN5, 1).space.combinations
    depths = [knob for sketch in sketches for knob in sketch.knobs if knob.name.endswith(".depth")]
    assert {value for knob in depths for value in knob.values} == blocks
    if blocks:
        check_kernels(workload, configs=4)
