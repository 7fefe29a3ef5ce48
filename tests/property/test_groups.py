"""Random expressions through the CPU's space: inlining and grouping keep the program,
sampled configs are right.

Right means: it schedules, compiles for this machine and computes what the float64
reference computes.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, Phase, given, settings
from numpy.typing import NDArray

from tests.support.depth import thinned
from tests.support.random_expressions import expressions
from tests.support.spaces import drawn_once
from tests.support.targets import host_target
from tuner.errors import IllegalSchedule
from tuner.lowering.arguments import restore_argument_shapes
from tuner.lowering.importers.lift_fusion import guarded
from tuner.lowering.schedule import schedule
from tuner.spaces.by_target import space_of
from tuner.spaces.default_schedule import default_program
from tuner.spaces.program.program import Program
from tuner.spaces.rewrite.groups import Group, RowGroup, TileGroup, groups
from tuner.spaces.rewrite.stages import inlined
from tuner.workload.arrays import numpy_dtype
from tuner.workload.expression import Expression, Stage, reads
from tuner.workload.inputs import make_inputs
from tuner.workload.keys import workload_key
from tuner.workload.notation import parse
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import workload_from_expression

ANY = ("f32", "f32", "f64", "f16", "bf16", "i32", "i8", "i64")
QUICK = [HealthCheck.too_slow, HealthCheck.data_too_large]
CONFIGS = 3  # sampled of each expression's space
MOST_ILLEGAL = 0.02  # share of the sampled configs that TVM may refuse


def members(group: Group) -> tuple[Stage, ...]:
    if isinstance(group, RowGroup):
        return group.stages
    assert isinstance(group, TileGroup)
    return tuple(stage for stage in (group.anchor, group.epilogue) if stage is not None)


def safe(expression: Expression) -> Expression:
    """The expression for the reference, which computes both sides of a selection: reads
    of the side not chosen stay inside."""
    tensors = {
        tensor.name: tensor
        for tensor in (*expression.inputs, *(stage.tensor for stage in expression.stages))
    }
    stages = []
    for stage in expression.stages:
        stages.append(replace(stage, body=guarded(stage.body, stage.extents, tensors)))
    return replace(expression, stages=tuple(stages))


@settings(deadline=None, max_examples=100, suppress_health_check=QUICK)
@given(expressions(dtypes=ANY))
def test_inlining_keeps_the_values(expression: Expression) -> None:
    short = inlined(expression)
    assert short.inputs == expression.inputs and short.outputs == expression.outputs
    arrays = make_inputs(expression, seed=4)
    want, magnitude = evaluate_with_magnitude(expression, arrays)
    got, _ = evaluate_with_magnitude(safe(short), arrays)
    assert max_rel_error(expression, got, want, magnitude) <= error_bound(expression)


@settings(deadline=None, max_examples=100, suppress_health_check=QUICK)
@given(expressions(dtypes=ANY, max_stages=6))
def test_groups_partition_the_stages_each_after_what_it_reads(expression: Expression) -> None:
    short = inlined(expression)
    parts = groups(short)
    names = [stage.name for group in parts for stage in members(group)]
    assert sorted(names) == sorted(stage.name for stage in short.stages)
    available = {tensor.name for tensor in short.inputs}
    for group in parts:
        inside = set(available)
        for stage in members(group):
            assert {read.tensor for read in reads(stage.body)} <= inside
            inside.add(stage.name)
        available.add(group.name)  # nothing else of a group is read from outside
    assert set(short.outputs) <= available


def computed(
    expression: Expression, program: Program, arrays: dict[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    target = tvm.target.Target(dict(host_target().tvm))
    library = tvm.tirx.build(
        restore_argument_shapes(schedule(program, "kernel").mod), target=target
    )
    held = {}
    for name in expression.outputs:
        tensor = expression.tensor(name)
        held[name] = tvm.runtime.tensor(np.full(tensor.shape, 77, numpy_dtype(tensor.dtype)))
    library["kernel"](
        *(tvm.runtime.tensor(arrays[tensor.name]) for tensor in expression.inputs), *held.values()
    )
    return {name: tensor.numpy() for name, tensor in held.items()}


class Sampled:
    """Configs of random expressions, each compiled and compared; `illegal` counts those
    that have no schedule."""

    def __init__(self) -> None:
        self.configs, self.illegal = 0, Counter[str]()

    def check(self, expression: Expression) -> None:
        arrays = make_inputs(expression, seed=6)
        want, magnitude = evaluate_with_magnitude(expression, arrays)
        workload = workload_from_expression(expression)
        seed = zlib.crc32(workload_key(expression).encode())
        space = space_of(workload, host_target(), threads=1 + seed % 2)
        configs = [
            space.space.config(point)
            for point in drawn_once(space.space, np.random.default_rng(seed), CONFIGS)
        ]
        programs = [
            (None, default_program(workload)),
            *((config, space.program(config)) for config in configs),
        ]
        for config, program in programs:
            self.configs += 1
            try:
                got = computed(expression, program, arrays)
            except IllegalSchedule as error:
                self.illegal[str(error)[:200]] += 1
                continue
            off = max_rel_error(expression, got, want, magnitude)
            assert off <= error_bound(expression), f"{config} is {off:.3g} off"


@pytest.mark.parametrize(
    "dtypes",
    thinned([("f32",), ("f64", "f16", "bf16"), ("i32", "i8", "i64")], 1, pytest.mark.slow),
)
def test_sampled_configs_schedule_compile_and_compute_the_reference(
    dtypes: tuple[str, ...],
) -> None:
    sampled = Sampled()

    @settings(
        deadline=None,
        max_examples=16,
        suppress_health_check=QUICK,
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
    )
    @given(expressions(dtypes=dtypes, max_stages=3))
    def check(expression: Expression) -> None:
        sampled.check(expression)

    check()
    assert sum(sampled.illegal.values()) <= MOST_ILLEGAL * sampled.configs, sampled.illegal


@pytest.mark.parametrize(
    "text",
    [
        # An iterator that cancels out of an index.
        "kernel k(X: f32[4, 5]) -> (Y: f32[1]) { Y[i] += (X[r - 1*r - 2, r] else 0) for i in "
        "0:1, r in 0:5 }",
        # The identity of a minimum of int64, which no index holds.
        "kernel k(X: i64[3, 7]) -> (Y: i64[5, 3]) { Y[i, j] max= (X[j, r] else 0) + i for i in "
        "0:5, r in 0:7 }",
        "kernel k(X: i64[3, 37], W: i64[3, 37]) -> (Y: i64[3]) { Y[i] min= X[i, r] * W[i, r] }",
        # One bfloat16 value for all lanes: constant, by division, by padding alone.
        "kernel k(X: bf16[5]) -> (Y: bf16[5, 7, 8]) { Y[i, j, l] = X[i] for i in 0:5, j in 0:7, "
        "l in 0:8 }",
        "kernel k(X: bf16[5, 2]) -> (Y: bf16[5, 16]) { Y[i, l] = X[i, l // 8] * 2 for i in 0:5, "
        "l in 0:16 }",
        "kernel k(X: bf16[5, 16]) -> (Y: bf16[5, 16]) { Y[i, l] = X[i + 5, l] else 0 for i in "
        "0:5, l in 0:16 }",
    ],
)
def test_programs_that_code_generation_once_refused(text: str) -> None:
    sampled = Sampled()
    sampled.check(parse(text, {}))
    assert not sampled.illegal
