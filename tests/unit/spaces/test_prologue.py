"""Programs in two: what depends on constants alone goes ahead, everything else stays,
and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.constant_target import TARGET
from tests.support.spaces import shared_space
from tuner.spaces.by_target import space_of
from tuner.spaces.default_schedule import default_program
from tuner.spaces.program.prepacking import split
from tuner.spaces.program.program import Program
from tuner.workload.expression import reads
from tuner.workload.spec import parse_spec

SPECS = (
    "matmul:M=24,N=32,K=64,const=B",
    "matmul:M=24,N=32,K=64,const=A",
    "matmul:M=24,N=32,K=64,transpose_b=true,const=B",
    "dense:M=8,N=32,K=64,bias=true,act=relu,const=W+bias",
    "conv2d:N=1,H=8,W=8,CI=4,CO=32,KH=3,KW=3,pad=1,const=W",
)


def programs(spec: str, count: int = 200, threads: int = 1) -> Iterator[Program]:
    space = shared_space(spec, TARGET, threads)
    for point in space.space.sample(np.random.default_rng(1), count):
        yield space.program(space.space.config(point))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("spec", SPECS)
def test_the_two_parts_are_the_whole(spec: str, threads: int) -> None:
    seen = 0
    for program in programs(spec, threads=threads):
        parts = split(program)
        if parts.prologue is None:
            assert parts.main is program
            continue
        seen += 1
        ahead, rest = parts.prologue, parts.main
        assert {*ahead.blocks, *rest.blocks} == {*program.blocks}
        assert len(ahead.steps) + len(rest.steps) == len(program.steps)
        assert {tensor.name for tensor in ahead.inputs} <= set(program.constants)
        assert all(block.reducer is None for block in ahead.blocks)
        assert rest.outputs == program.outputs and not rest.constants
        for part in (ahead, rest):
            declared = {tensor.name for tensor in (*part.inputs, *part.outputs)} | {
                buffer.name for buffer in part.buffers
            }
            assert {read.tensor for block in part.blocks for read in reads(block.body)} <= declared
            assert {block.buffer for block in part.blocks} <= declared - {
                tensor.name for tensor in part.inputs
            }
        assert {tensor.name for tensor in ahead.outputs} <= {tensor.name for tensor in rest.inputs}
    assert seen > 10


@pytest.mark.parametrize("spec", SPECS)
def test_it_goes_ahead_exactly_where_a_constant_is_copied_at_the_root(spec: str) -> None:
    workload = parse_spec(spec)
    space = space_of(workload, TARGET, 1)
    with_packed = 0
    for point in space.space.sample(np.random.default_rng(2), 200):
        config = space.space.config(point)
        sketch = next(part for part in str(config["sketch"]).split("+"))
        prefix = sketch.replace(":", ".")
        packed = {
            name.rsplit("_", 1)[1]
            for name, value in config.items()
            if name.startswith(f"{prefix}.copy")
            and value == "pack_root"
            and name.rsplit("_", 1)[1] in workload.constants
        }
        parts = split(space.program(config))
        inputs = (
            set() if parts.prologue is None else {tensor.name for tensor in parts.prologue.inputs}
        )
        assert packed <= inputs, config
        with_packed += bool(packed)
    assert with_packed > 0


def test_nothing_goes_ahead_without_constants() -> None:
    for program in programs("matmul:M=24,N=32,K=64", 50):
        assert split(program).prologue is None
    assert split(default_program(parse_spec("matmul:M=24,N=32,K=64,const=B"))).prologue is None


def test_the_packed_buffer_takes_the_constants_place() -> None:
    parts = next(
        parts
        for parts in map(split, programs("dense:M=8,N=32,K=64,bias=true,const=W"))
        if parts.prologue
    )
    assert parts.prologue is not None
    (packed,) = parts.prologue.outputs
    assert [tensor.name for tensor in parts.main.inputs] == ["X", packed.name, "bias"]
