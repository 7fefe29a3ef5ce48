"""Axes of one point go, values stay; models of batch one have their rows in one kernel on a
GPU, and the ends of their products in one nest on a CPU."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.checked_kernels import check_kernels
from tests.support.targets import ZEN5
from tuner.spaces.by_target import gpu_space, space_of
from tuner.spaces.rewrite.groups import RowGroup, TileGroup
from tuner.spaces.rewrite.unit_axes import without_unit_axes
from tuner.target.detect import parse_target
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec, workload_from_notation

# Text, and the shapes that inputs and stages have without their axes of one point.
CASES = {
    "rows": (
        "kernel rows(X: f32[1, 3, 5]) -> (Y: f32[1, 3, 5]) { S[b, i] += X[b, i, j]\n "
        "Y[b, i, j] = X[b, i, j] - S[0, i] }",
        [(3, 5), (3,), (3, 5)],
    ),
    "nothing": (
        "kernel plain(X: f32[3, 5]) -> (Y: f32[3]) { Y[i] += X[i, j] }",
        [(3, 5), (3,)],
    ),
    "one element is left": (
        "kernel all(X: f32[1, 1]) -> (Y: f32[1]) { Y[i] = X[i, 0] * 2 }",
        [(1,), (1,)],
    ),
    # Beyond the only point of a padded dimension is another value.
    "padding": (
        "kernel window(X: f32[1, 5]) -> (Y: f32[1, 5]) { Y[b, i] += X[b + u - 1, i] else 7 for "
        "u in 0:3 }",
        [(1, 5), (5,)],
    ),
    "a gather": (
        "kernel look(X: f32[1, 5], I: i32[1, 3]) -> (Y: f32[1, 3]) { Y[b, i] = "
        "X[0, clamp(I[b, i], 0, 4)] }",
        [(5,), (3,), (3,)],
    ),
    "the point's number": (
        "kernel number(X: f32[1, 5]) -> (Y: f32[1, 5]) { Y[b, i] = X[b, i] * f32(b + i) }",
        [(5,), (5,)],
    ),
}


@pytest.mark.parametrize("name", list(CASES))
def test_values_stay_and_axes_of_one_point_go(name: str) -> None:
    text, shapes = CASES[name]
    expression = workload_from_notation(text, {}).expression
    plain = without_unit_axes(expression)
    assert [tensor.shape for tensor in plain.inputs] + [
        tuple(axis.extent for axis in stage.axes) for stage in plain.stages
    ] == shapes
    arrays = make_inputs(expression, seed=3)
    given = {tensor.name: arrays[tensor.name].reshape(tensor.shape) for tensor in plain.inputs}
    before, after = evaluate(expression, arrays), evaluate(plain, given)
    for output in expression.outputs:
        np.testing.assert_array_equal(after[output].reshape(before[output].shape), before[output])


SOFTMAX = """
kernel softmax(X: f16[1, 3, 8, 40]) -> (Y: f16[1, 3, 8, 40]) {
  R[b, h, i] max= f32(X[b, h, i, j])
  E[b, h, i, j] = exp(f32(X[b, h, i, j]) - R[0, h, i])
  Z[b, h, i] += E[b, h, i, j]
  Y[b, h, i, j] = f16(E[b, h, i, j] / Z[0, h, i])
}"""


def test_rows_along_several_axes_are_one_kernel_on_a_gpu() -> None:
    space = gpu_space(workload_from_notation(SOFTMAX, {}), parse_target("cuda:sm_90"))
    (group,) = space.algorithm.groups
    assert isinstance(group, RowGroup) and [axis.extent for axis in group.rows] == [24]
    program = space.program(space.space.config(space.space.unrank(0)))
    assert [tensor.shape for tensor in program.inputs] == [(1, 3, 8, 40)]


ENDED = """
kernel ended(X: f32[15, 8], W: f32[8, 24], Z: f32[1, 15, 24]) -> (Y: f32[1, 15, 24]) {
  T[i, j] += X[i, k] * W[k, j]
  Y[b, i, j] = T[i, j] + Z[b, i, j]
}"""


def test_a_product_is_ended_by_a_map_with_a_batch_of_one() -> None:
    workload = workload_from_notation(ENDED, {})
    (group,) = space_of(workload, ZEN5, 1).algorithm.groups
    assert isinstance(group, TileGroup) and group.epilogue is not None
    check_kernels(workload, configs=2)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_what_is_one_kernel_already_keeps_its_axes(target: str) -> None:
    workload = parse_spec("conv2d:N=1,H=8,W=8,CI=16,CO=16,KH=3,KW=3,pad=1")
    space = (
        space_of(workload, ZEN5, 1)
        if target == "cpu"
        else gpu_space(workload, parse_target("cuda:sm_90"))
    )
    (group,) = space.algorithm.groups
    assert len(group.output.axes) == 4
