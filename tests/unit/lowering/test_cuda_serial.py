"""Scheduled modules for GPUs, run on the CPU with bound loops made serial and shared memory plain.

Each sketch then means what it should. Races, barriers and the lowering of reductions across threads are not in this; only a GPU
shows them.
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import tvm

from tests.unit.lowering.serial import serial
from tuner.lowering.schedule import schedule
from tuner.spaces.cuda import CudaSpace
from tuner.target.cuda import cuda_target
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec

TARGET = cuda_target("sm_80", lambda fingerprint: "declared")
SPECS = (
    "matmul:M=61,N=67,K=71", "matmul:M=64,N=64,K=64,transpose_b=true", "batch_matmul:B=2,M=30,N=40,K=50",
    "dense:M=20,N=50,K=90,bias=true,act=gelu", "conv2d:N=1,H=15,W=14,CI=6,CO=15,KH=3,KW=3,pad=1,act=relu",
    "conv2d:N=1,H=17,W=16,CI=4,CO=8,KH=3,KW=3,stride=2", "max_pool2d:N=1,H=15,W=15,C=5,KH=3,KW=3,stride=2,pad=1",
    "softmax:M=13,N=127", "softmax:M=8,N=512", "layer_norm:M=33,N=768", "reduce_sum:M=50,N=131,axis=1",
    "reduce_max:M=50,N=130,axis=0", "transpose:M=45,N=97", "transpose:M=64,N=128", "attention:B=1,H=2,S=20,D=16",
)  # fmt: skip


@pytest.mark.parametrize("spec", SPECS)
def test_schedules_compute_the_expression(spec: str) -> None:
    workload = parse_spec(spec)
    inputs = make_inputs(workload.expression, seed=7, kind="normal")
    want = evaluate(workload.expression, inputs)
    space = CudaSpace(workload, TARGET)
    rng = np.random.default_rng(zlib.crc32(spec.encode()))
    for point in space.space.sample(rng, 3):
        config = space.space.config(point)
        program = space.program(config)
        library = tvm.tirx.build(serial(schedule(program, "k").mod), target=tvm.target.Target({"kind": "llvm", "opt-level": 1}))
        given = [tvm.runtime.tensor(inputs[tensor.name]) for tensor in workload.expression.inputs]
        outputs = [tvm.runtime.tensor(np.full(tensor.shape, np.nan, tensor.dtype)) for tensor in program.outputs]
        library["k"](*given, *outputs)
        for name, got in zip(workload.expression.outputs, outputs, strict=True):
            np.testing.assert_allclose(got.numpy(), want[name], rtol=2e-4, atol=2e-5, err_msg=str(config))
