"""Kernels take arguments in their callers' shapes, whatever shapes their blocks address."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from tests.support.targets import host_target
from tuner.lowering.compiler import Compiled, compile_program, compile_stored
from tuner.spaces.by_target import space_of
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec

WORKLOAD = parse_spec("batch_norm:N=2,H=3,W=5,C=4,layout=NCHW")


@pytest.fixture(scope="module")
def kernel() -> Compiled:
    space = space_of(WORKLOAD, host_target(), threads=1)
    (point,) = space.space.sample(np.random.default_rng(1), 1)
    return compile_program(space.program(space.space.config(point)), host_target(), "kernel")


def test_callers_keep_their_shapes(kernel: Compiled) -> None:
    assert [*kernel.program.views.values()] == [(2, 4, 15), (2, 4, 15)]
    arrays = make_inputs(WORKLOAD.expression, seed=4)
    output = tvm.runtime.tensor(np.zeros((2, 4, 3, 5), np.float32))
    inputs = [tvm.runtime.tensor(arrays[tensor.name]) for tensor in WORKLOAD.expression.inputs]
    kernel.generated["kernel"](*inputs, output)
    np.testing.assert_allclose(
        output.numpy(), evaluate(WORKLOAD.expression, arrays)["Y"], rtol=1e-5, atol=1e-6
    )
    with pytest.raises(ValueError, match="ndim"):
        kernel.generated["kernel"](*inputs, tvm.runtime.tensor(np.zeros((2, 4, 15), np.float32)))


def test_a_stored_schedule_gives_the_same_code(kernel: Compiled) -> None:
    assert compile_stored(kernel.schedule, host_target()) == kernel.object_code
