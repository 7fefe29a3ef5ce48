"""Compiled kernels of random configs against the reference."""

from __future__ import annotations

import numpy as np
import tvm

from tuner.lowering.compiler import compile_program
from tuner.spaces.cpu import CpuSpace
from tuner.target.detect import detect_cpu
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.workload import Workload


def check_kernels(workload: Workload, configs: int) -> None:
    """Of a workload with one output, on this machine; what is no number must be none in both."""
    target, inputs = detect_cpu(), make_inputs(workload.expression, seed=5)
    space = CpuSpace(workload, target, threads=1)
    with np.errstate(all="ignore"):
        want, magnitude = evaluate_with_magnitude(workload.expression, inputs)
    (name,) = workload.expression.outputs
    tensor = workload.expression.tensor(name)
    numbers = ~np.isnan(want[name].astype(np.float64))
    for point in space.space.sample(np.random.default_rng(11), configs):
        got = tvm.runtime.empty(tensor.shape, tensor.dtype)
        compiled = compile_program(space.program(space.space.config(point)), target, "kernel").generated
        compiled["kernel"](*map(tvm.runtime.tensor, inputs.values()), got)
        np.testing.assert_array_equal(~np.isnan(got.numpy().astype(np.float64)), numbers)
        found, wanted, size = ({name: np.where(numbers, one, 0)} for one in (got.numpy(), want[name], magnitude[name]))
        assert max_rel_error(workload.expression, found, wanted, size) <= error_bound(workload.expression)
