"""Sums of products of small matrices: offered where the instruction is there, and right as
loops where it is not; under QEMU in tests/integration/test_emulated_cpus.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tvm.runtime import tensor

from tests.support.program_interpreter import run
from tests.support.targets import host_target
from tuner.cost_model.cpu.nests import tables
from tuner.cost_model.cpu.operands import operand_counts
from tuner.lowering.compiler import Compiled, compile_program
from tuner.spaces.by_target import cpu_space
from tuner.spaces.core.space import Value
from tuner.target.detect import parse_target
from tuner.workload.arrays import numpy_dtype
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

V2 = parse_target("cpu:neoverse-v2")
PRODUCT = (
    "kernel p(A: {}[7, 37], B: {}[37, 21]) -> (C: i32[7, 21]) {{ "
    "C[i, j] += i32(A[i, k]) * i32(B[k, j]) }}"
)
MIXED = PRODUCT.format("u8", "i8")
BLOCKED = "matmul:M=2,N=8,K=512,dtype=int8"  # whose reduction may be cut into blocks
SPECS = (
    PRODUCT.format("i8", "i8"),
    PRODUCT.format("u8", "u8"),
    MIXED,
    "matmul:M=6,N=12,K=64,dtype=int8",
    "matmul:M=9,N=16,K=48,transpose_a=true,transpose_b=true,dtype=int8",
    "dense:M=6,N=20,K=64,bias=true,act=relu,dtype=int8",
    "matmul:M=12,N=16,K=30,dtype=bfloat16",
    "dense:M=5,N=19,K=32,bias=true,act=gelu,dtype=bfloat16",
    BLOCKED,
    "conv2d:N=1,H=3,W=4,CI=6,CO=8,KH=2,KW=2,pad=1,dtype=int8",
)


def made(given: str) -> Workload:
    return workload_from_notation(given, {}) if given.startswith("kernel") else parse_spec(given)


def sampled(given: str, count: int) -> list[dict[str, Value]]:
    """Configs of the sketch, some with each way to copy an operand."""
    space = cpu_space(made(given), V2, 1).space
    configs = (space.config(point) for point in space.sample(np.random.default_rng(4), 400))
    return [dict(config) for config in configs if ":mmla_" in str(config["sketch"])][:count]


def inputs_of(workload: Workload) -> dict[str, NDArray[Any]]:
    """Integers fill the range of their dtype, so that a sign taken for another shows."""
    rng = np.random.default_rng(6)
    drawn = make_inputs(workload.expression, seed=5, kind="normal")
    for name, array in drawn.items():
        if array.dtype in (np.int8, np.uint8):
            range_of = np.iinfo(array.dtype)
            drawn[name] = rng.integers(
                range_of.min, range_of.max, array.shape, array.dtype, endpoint=True
            )
    return drawn


def agrees(got: NDArray[Any], want: NDArray[Any]) -> bool:
    """Integers to the bit; bfloat16 within one rounding of its eight bits."""
    if got.dtype.kind in "iu":
        return bool(np.array_equal(got, want))
    return bool(np.allclose(got.astype(float), want.astype(float), rtol=2**-7, atol=2**-7))


@pytest.mark.parametrize("given", SPECS)
def test_programs_compute_what_the_reference_computes(given: str) -> None:
    workload = made(given)
    inputs = inputs_of(workload)
    want = evaluate(workload.expression, inputs)
    config = sampled(given, 1)[0]
    if given == BLOCKED:
        config["C.mmla_j.depth"] = 8
    got = run(cpu_space(workload, V2, 1).program(config), dict(inputs))
    for name, array in zip(workload.expression.outputs, got, strict=True):
        assert agrees(array, want[name]), config


def on_this_machine(given: str, config: dict[str, Value]) -> Compiled:
    program = cpu_space(made(given), V2, 1).program(config)
    return compile_program(program, host_target(), "kernel")


def least(given: str) -> dict[str, Value]:
    """The config with the smallest register tile, which compiles soonest."""
    (name,) = (name for name in sampled(given, 1)[0] if name.endswith(".mmla_j.register"))
    return min(sampled(given, 100), key=lambda config: int(np.prod(np.array(config[name]))))


@pytest.mark.slow
@pytest.mark.parametrize("given", [MIXED, SPECS[7]])
def test_a_schedule_runs_on_a_cpu_without_the_instruction(given: str) -> None:
    workload = made(given)
    inputs = inputs_of(workload)
    want = evaluate(workload.expression, inputs)
    config = least(given)
    outputs = [workload.expression.tensor(name) for name in workload.expression.outputs]
    into = [tensor(np.zeros(each.shape, numpy_dtype(each.dtype))) for each in outputs]
    on_this_machine(given, config).generated["kernel"](*map(tensor, inputs.values()), *into)
    for each, array in zip(outputs, into, strict=True):
        assert agrees(array.numpy(), want[each.name]), config


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("matmul:M=12,N=16,K=32", "neoverse-v2"),  # float32
        ("matmul:M=1,N=16,K=32,dtype=int8", "neoverse-v2"),  # nothing for rows
        ("matmul:M=12,N=3,K=32,dtype=int8", "neoverse-v2"),  # no whole vector
        ("matmul:M=12,N=16,K=32,dtype=int8", "neoverse-n1"),
        ("matmul:M=12,N=16,K=32,dtype=bfloat16", "neoverse-n1"),
        (PRODUCT.format("i8", "u8"), "neoverse-v2"),  # the first factor has no sign
        ("depthwise_conv2d:N=1,H=9,W=8,C=32,KH=3,KW=3,pad=1,dtype=int8", "neoverse-v2"),
    ],
)
def test_where_it_is_not_offered(given: str, name: str) -> None:
    every = cpu_space(made(given), parse_target(f"cpu:{name}"), 1).sketches.values()
    assert not [part for parts in every for part in parts if part.name.startswith("mmla")]


def test_tiles_are_whole_matrices_that_fit_the_registers() -> None:
    space = cpu_space(parse_spec("matmul:M=64,N=64,K=64,dtype=int8"), V2, 1)
    (sketch,) = space.sketches["C:mmla_j"]
    tiles = sketch.facts.register_tile.values
    assert (8, 8) in tiles and (12, 8) in tiles and (16, 8) not in tiles
    for rows, columns in tiles:
        assert rows % 2 == 0 and columns in (4, 8, 16, 32)
        assert rows * columns // 4 + min(rows, columns) // 2 < 32


def test_the_estimate_counts_whole_vectors_of_both_factors() -> None:
    space = cpu_space(parse_spec("matmul:M=64,N=64,K=64,dtype=int8"), V2, 1)
    (table,) = tables(space, "C:mmla_j")
    config = {**sampled("matmul:M=64,N=64,K=64,dtype=int8", 1)[0]}
    config["C.mmla_j.register"] = (8, 8)
    config["C.mmla_j.unroll"] = (0, 1)
    nest = table.decode(np.stack([space.space.point(config)]))
    accumulators = np.array([16.0])
    assert operand_counts(table, nest, accumulators).total == [8.0]
