"""Random expressions through the space for GPUs: sampled configs schedule, run serially
give the reference, and give source."""

from __future__ import annotations

import zlib
from collections import Counter

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, Phase, given, settings

from tests.support.random_expressions import expressions
from tests.support.serial_modules import serial, without_instructions
from tuner.errors import IllegalSchedule
from tuner.lowering.cuda.codegen import cuda_kernels
from tuner.lowering.schedule import schedule
from tuner.spaces.by_target import space_of
from tuner.target.cuda import cuda_target
from tuner.workload.arrays import numpy_dtype
from tuner.workload.expression import Expression
from tuner.workload.inputs import make_inputs
from tuner.workload.keys import workload_key
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import workload_from_expression

TARGET = cuda_target("sm_80", lambda fingerprint: "declared")
QUICK = [HealthCheck.too_slow, HealthCheck.data_too_large]
CONFIGS = 2  # sampled of each expression's space
MOST_ILLEGAL = 0.02  # share of the sampled configs that TVM may refuse


class Sampled:
    """Configs of random expressions, each run serially and generated; `illegal` counts
    those that have no schedule."""

    def __init__(self) -> None:
        self.configs, self.illegal = 0, Counter[str]()

    def check(self, expression: Expression) -> None:
        arrays = make_inputs(expression, seed=6)
        want, magnitude = evaluate_with_magnitude(expression, arrays)
        space = space_of(workload_from_expression(expression), TARGET, 1)
        rng = np.random.default_rng(zlib.crc32(workload_key(expression).encode()))
        for point in space.space.sample(rng, CONFIGS):
            self.configs += 1
            config = space.space.config(point)
            try:
                program = space.program(config)
                module = serial(schedule(without_instructions(program), "kernel").mod)
            except IllegalSchedule as error:
                self.illegal[str(error)[:200]] += 1
                continue
            library = tvm.tirx.build(
                module, target=tvm.target.Target({"kind": "llvm", "opt-level": 1})
            )
            outputs = [expression.tensor(name) for name in expression.outputs]
            held = [
                tvm.runtime.tensor(np.full(output.shape, 77, numpy_dtype(output.dtype)))
                for output in outputs
            ]
            library["kernel"](
                *(tvm.runtime.tensor(arrays[tensor.name]) for tensor in expression.inputs), *held
            )
            got = {
                output.name: tensor.numpy() for output, tensor in zip(outputs, held, strict=True)
            }
            off = max_rel_error(expression, got, want, magnitude)
            assert off <= error_bound(expression), f"{config} is {off:.3g} off"
            assert "__global__" in cuda_kernels(program, TARGET, "kernel").text


@pytest.mark.slow
@pytest.mark.parametrize("dtypes", [("f32",), ("f64", "f16", "bf16"), ("i32", "i8", "i64")])
def test_sampled_configs_compute_the_reference_and_give_source(dtypes: tuple[str, ...]) -> None:
    sampled = Sampled()

    @settings(
        deadline=None,
        max_examples=12,
        suppress_health_check=QUICK,
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
    )
    @given(expressions(dtypes=dtypes, max_stages=3))
    def check(expression: Expression) -> None:
        sampled.check(expression)

    check()
    assert sum(sampled.illegal.values()) <= MOST_ILLEGAL * sampled.configs, sampled.illegal
