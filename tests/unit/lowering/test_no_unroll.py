"""A tile's reduction is unrolled as its config says and no further, and that costs nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tuner.lowering.compiler import Compiled, compile_program
from tuner.lowering.llvm_functions import NO_OPERATION
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Value
from tuner.spaces.program.marks import NoUnroll
from tuner.target.target import Target
from tuner.workload.spec import parse_spec

# A core whose scheduling model has LLVM unroll long bodies by itself.
TARGET = Target(
    key="0" * 64,
    kind="cpu",
    name="a CPU",
    tvm={"kind": "llvm", "mcpu": "znver4"},
    isa=("avx512f",),
    vector_bytes=64,
    vector_registers=32,
    cores=2,
    l1d_bytes=32 << 10,
    l2_bytes=1 << 20,
    l3_bytes=0,
)
ACCUMULATORS = 24  # of 6 rows of 64 elements: with their operands 29 registers of 32


def compiled(spec: str, changes: Mapping[str, Value]) -> Compiled:
    """The first config of the operator's tile sketch along j, with the changes."""
    space = space_of(parse_spec(spec), TARGET, 1)
    config = space.space.config(
        space.space.canonical(np.zeros((1, len(space.space.knobs)), np.int32))[0]
    )
    named = {f"C.tile_j.{name}": value for name, value in changes.items()}
    return compile_program(
        space.program({**config, "sketch": "C:tile_j", **named}), TARGET, "kernel"
    )


@pytest.mark.parametrize("unroll", [1, 2, 4])
def test_the_compiler_does_not_unroll_what_fills_the_registers(unroll: int) -> None:
    kernel = compiled(
        "matmul:M=28,N=64,K=512", {"register": (6, 64), "depth": 512, "unroll": (0, unroll)}
    )
    assembly = kernel.sources["asm"]
    assert assembly.count("vfmadd") == unroll * ACCUMULATORS
    assert NO_OPERATION.name not in assembly, "nothing is called"


@pytest.mark.parametrize(("steps", "marked"), [(8, False), (32, True)])
def test_only_long_reductions_are_marked(steps: int, marked: bool) -> None:
    kernel = compiled(f"matmul:M=28,N=64,K={steps}", {"register": (6, 64), "unroll": (0, 1)})
    assert marked == any(isinstance(step, NoUnroll) for step in kernel.program.steps)
