"""Programs of sampled configs, compared with the reference."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np

from tests.support.program_interpreter import run
from tests.support.targets import ZEN5
from tuner.spaces.by_target import space_of
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.workload import Workload

# Narrow vectors make tiny extents exercise every path.
NARROW = replace(ZEN5, vector_bytes=16, vector_registers=16)


def check(workload: Workload, configs: int) -> None:
    inputs = make_inputs(workload.expression, seed=5, kind="normal")
    want = evaluate(workload.expression, inputs)
    ordered = {tensor.name: inputs[tensor.name] for tensor in workload.expression.inputs}
    space = space_of(workload, NARROW, threads=1)
    rng = np.random.default_rng(zlib.crc32(workload.key.encode()))
    for point in space.space.sample(rng, configs):
        config = space.space.config(point)
        for name, got in zip(
            workload.expression.outputs, run(space.program(config), ordered), strict=True
        ):
            np.testing.assert_allclose(got, want[name], rtol=1e-9, atol=1e-12, err_msg=str(config))
