"""Kernels take arguments in their callers' shapes, whatever shapes their blocks address."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from tests.support.targets import host_target
from tuner.lowering.compiler import compile_program, compile_stored
from tuner.spaces.by_target import space_of
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec

TARGET = host_target()
WORKLOAD = parse_spec("batch_norm:N=2,H=3,W=5,C=4,layout=NCHW")
SPACE = space_of(WORKLOAD, TARGET, threads=1)
KERNEL = compile_program(
    SPACE.program(SPACE.space.config(SPACE.space.sample(np.random.default_rng(1), 1)[0])),
    TARGET,
    "kernel",
)


def test_callers_keep_their_shapes() -> None:
    assert [*KERNEL.program.views.values()] == [(2, 4, 15), (2, 4, 15)]
    arrays = make_inputs(WORKLOAD.expression, seed=4)
    output = tvm.runtime.tensor(np.zeros((2, 4, 3, 5), np.float32))
    inputs = [tvm.runtime.tensor(arrays[tensor.name]) for tensor in WORKLOAD.expression.inputs]
    KERNEL.generated["kernel"](*inputs, output)
    np.testing.assert_allclose(
        output.numpy(), evaluate(WORKLOAD.expression, arrays)["Y"], rtol=1e-5, atol=1e-6
    )
    with pytest.raises(ValueError, match="ndim"):
        KERNEL.generated["kernel"](*inputs, tvm.runtime.tensor(np.zeros((2, 4, 15), np.float32)))


def test_a_stored_schedule_gives_the_same_code() -> None:
    assert compile_stored(KERNEL.schedule, TARGET) == KERNEL.object_code
