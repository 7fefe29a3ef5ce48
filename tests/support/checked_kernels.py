"""Kernels compiled for this machine and run; those of random configs against the reference."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from tests.support.spaces import drawn_once
from tests.support.targets import host_target
from tuner.lowering.compiler import build
from tuner.lowering.schedule import schedule
from tuner.spaces.by_target import space_of
from tuner.spaces.program.program import Program
from tuner.target.target import Target
from tuner.workload.expression import Expression
from tuner.workload.inputs import Kind, make_inputs
from tuner.workload.reference import Arrays, error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.workload import Workload


def output_of(
    program: Program, expression: Expression, inputs: Arrays, target: Target | None = None
) -> NDArray[Any]:
    """What the program computes as the expression's only output, compiled for this machine
    or for a target that it can stand in for."""
    (name,) = expression.outputs
    tensor = expression.tensor(name)
    got = tvm.runtime.empty(tensor.shape, tensor.dtype)
    kernel = build(schedule(program, "kernel").mod, target or host_target())
    kernel["kernel"](*map(tvm.runtime.tensor, inputs.values()), got)
    output: NDArray[Any] = got.numpy()
    return output


def check_programs(workload: Workload, programs: Iterable[Program]) -> None:
    """Of a workload with one output, on this machine."""
    inputs = make_inputs(workload.expression, seed=4)
    want, magnitude = evaluate_with_magnitude(workload.expression, inputs)
    (name,) = workload.expression.outputs
    for program in programs:
        got = {name: output_of(program, workload.expression, inputs)}
        assert max_rel_error(workload.expression, got, want, magnitude) <= error_bound(
            workload.expression
        )


def check_kernels(
    workload: Workload, configs: int, kind: Kind = "normal", *, libm: bool = False
) -> None:
    """Of a workload with one output, on this machine; what is no number must be none in both.

    `libm` calls functions instead of polynomials, which LLVM leaves out of what it knows
    to be NaN (`tuner.lowering.math_functions`).
    """
    inputs = make_inputs(workload.expression, seed=5, kind=kind)
    space = space_of(workload, host_target(), threads=1)
    with np.errstate(all="ignore"):
        want, magnitude = evaluate_with_magnitude(workload.expression, inputs)
    (name,) = workload.expression.outputs
    numbers = ~np.isnan(want[name].astype(np.float64))
    for point in drawn_once(space.space, np.random.default_rng(11), configs):
        config = space.space.config(point)
        if libm:
            config |= {name: "libm" for name in config if name.endswith(".mathematics")}
        got = output_of(space.program(config), workload.expression, inputs)
        np.testing.assert_array_equal(~np.isnan(got.astype(np.float64)), numbers)
        actual, expected, size = (
            {name: np.where(numbers, values, 0)} for values in (got, want[name], magnitude[name])
        )
        assert max_rel_error(workload.expression, actual, expected, size) <= error_bound(
            workload.expression
        )
