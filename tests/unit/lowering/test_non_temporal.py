"""Stores past the caches: the same results, by instructions that do it where vectors
lie whole, with a fence for each thread."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx

from tests.support.checked_kernels import check_programs
from tests.support.targets import host_target
from tuner.cost_model.cpu.calibration import units_of
from tuner.cost_model.cpu.cycles import TERM_NAMES
from tuner.cost_model.features import TERMS, featurizer
from tuner.lowering.compiler import compile_program
from tuner.lowering.llvm_functions import FENCE, called_functions, non_temporal_store
from tuner.lowering.passes.non_temporal import NON_TEMPORAL, use_non_temporal_stores
from tuner.spaces.by_target import cpu_space
from tuner.spaces.core.space import Value
from tuner.spaces.core.target_space import TargetSpace
from tuner.workload.spec import parse_spec

SMALL = replace(host_target(), l2_bytes=1024)  # holds nothing of what tests can compute
SIXTEEN = replace(
    SMALL, tvm={"kind": "llvm", "mcpu": "skylake-avx512"}, vector_bytes=64, vector_registers=32
)


def streamed(space: TargetSpace[Any], count: int) -> Iterator[dict[str, Value]]:
    """Random configs, with all outputs past the caches."""
    for point in space.space.sample(np.random.default_rng(5), count):
        config = space.space.config(point)
        yield config | {
            knob.name: "streamed" for knob in space.space.knobs if knob.name.endswith(".stores")
        }


@pytest.mark.parametrize(
    "spec",
    [
        "elementwise:M=33,N=64,act=relu",
        "elementwise:M=24,N=64,act=gelu",
        "elementwise:M=9,N=64,act=exp,dtype=float64",
        "bias_act:M=31,N=208,act=tanh",
        "transpose:M=48,N=80",
        "transpose:M=64,N=33,dtype=float64",
        "batch_norm:N=3,H=5,W=5,C=48",
        "softmax:M=19,N=96",
        "layer_norm:M=7,N=256",
        "max_pool2d:N=1,H=13,W=11,C=32,KH=3,KW=3,stride=2,pad=1",
        "depthwise_conv2d:N=1,H=9,W=9,C=32,KH=3,KW=3,pad=1,act=relu,bias=true",
        "conv2d:N=1,H=9,W=9,CI=8,CO=48,KH=1,KW=1",
    ],
)
@pytest.mark.parametrize("threads", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_results_are_what_they_are_through_the_caches(spec: str, threads: int) -> None:
    workload = parse_spec(spec)
    space = cpu_space(workload, SMALL, threads=threads)
    programs = [space.program(config) for config in streamed(space, 4)]
    past = [program for program in programs if any(b.non_temporal for b in program.blocks)]
    assert past
    check_programs(workload, past)


def assembly(spec: str, threads: int, config: dict[str, Value]) -> str:
    space = cpu_space(parse_spec(spec), SIXTEEN, threads)
    return compile_program(space.program(config), SIXTEEN, "kernel").sources["asm"]


TILE: dict[str, Value] = {"sketch": "Y:tile_ij", "Y.tile_ij.register": (32,)}
AT = TERM_NAMES.index("non_temporal_stores")


@pytest.mark.parametrize("threads", [1, 2])
def test_whole_vectors_go_past_the_caches_and_a_fence_waits_for_them(threads: int) -> None:
    spec = "elementwise:M=64,N=512,act=relu"
    through, past = (
        assembly(spec, threads, TILE | {"Y.tile_ij.stores": how}) for how in ("cached", "streamed")
    )
    assert "vmovntps" in past and "vmovntps" not in through
    fence = r"\bmfence\b|lock\s+or"
    assert len(re.findall(fence, past)) > len(re.findall(fence, through))
    assert FENCE.name not in past and "tuner_stream" not in past, "nothing is called"


@pytest.mark.parametrize(
    ("first", "apart", "past"), [(0, 16, True), (32, 48, True), (8, 16, False), (0, 8, False)]
)
def test_vectors_that_begin_between_multiples_of_a_line_are_stored_as_ever(
    first: int, apart: int, past: bool
) -> None:
    """An instruction that stores past the caches takes only addresses of whole vectors."""
    source, target = (tirx.decl_buffer((1024,), "float32", name=name) for name in ("X", "Y"))
    turn, begin = tirx.Var("turn", "int32"), tirx.Var("begin", "int32")
    vector = tirx.Ramp(begin, tirx.const(1, "int32"), 16)
    store = tirx.AttrStmt(
        0, NON_TEMPORAL, 0, tirx.BufferStore(target, tirx.BufferLoad(source, [vector]), [vector])
    )
    body = tirx.SeqStmt(
        [tirx.Bind(begin, tirx.min(turn * apart, tirx.const(512, "int32")) + first), store]
    )
    loop = tirx.For(
        turn, tirx.const(0, "int32"), tirx.const(20, "int32"), tirx.ForKind.SERIAL, body
    )
    function = use_non_temporal_stores(
        tvm.IRModule({"kernel": tirx.PrimFunc([source, target], loop)})
    )["kernel"].body
    assert (non_temporal_store("float32", 16).name in called_functions(function)) == past
    assert f'"{NON_TEMPORAL}"' not in str(function)


@pytest.mark.parametrize(
    ("spec", "l2_bytes", "offered"),
    [
        ("elementwise:M=64,N=1024,act=gelu", 1 << 17, True),
        ("elementwise:M=64,N=1024,act=gelu", 1 << 18, False),  # the cache holds it
        ("bias_act:M=64,N=1001,act=relu", 1 << 10, False),  # rows begin anywhere
        ("elementwise:M=64,N=1024,act=gelu,dtype=bfloat16", 1 << 10, False),
        ("transpose:M=128,N=256", 1 << 10, True),
        ("softmax:M=64,N=256", 1 << 10, True),
        ("reduce_sum:M=512,N=64", 1 << 10, False),  # one number a row
        ("max_pool2d:N=1,H=13,W=11,C=32,KH=3,KW=3,stride=2,pad=1", 1 << 10, True),
        ("matmul:M=64,N=64,K=512", 1 << 10, False),  # computing takes longer by far
    ],
)
def test_it_is_offered_where_it_may_pay(spec: str, l2_bytes: int, offered: bool) -> None:
    space = cpu_space(parse_spec(spec), replace(SIXTEEN, l2_bytes=l2_bytes), threads=1).space
    assert any(knob.name.endswith(".stores") for knob in space.knobs) == offered


def test_the_model_counts_lines_that_go_past_the_caches_in_parts() -> None:
    space = cpu_space(
        parse_spec("elementwise:M=2048,N=2048,act=relu"),
        replace(SIXTEEN, vector_bytes=32, l2_bytes=1 << 20),
        1,
    )
    configs = [
        TILE | {"Y.tile_ij.register": (width,), "Y.tile_ij.stores": "streamed"}
        for width in (8, 16, 32)
    ]
    half, line, lines = units_of(
        featurizer(space)(np.stack([space.space.point(one) for one in configs])), TERMS
    )[:, AT]
    assert half == pytest.approx(2 * line, rel=1e-4) and line == pytest.approx(lines, rel=1e-4)


def test_the_model_sees_what_is_written_where() -> None:
    space = cpu_space(
        parse_spec("elementwise:M=2048,N=2048,act=relu"), replace(SIXTEEN, l2_bytes=1 << 20), 1
    )
    rows = featurizer(space)(
        np.stack(
            [space.space.point(TILE | {"Y.tile_ij.stores": how}) for how in ("cached", "streamed")]
        )
    )
    through, past = (
        {name: units[TERM_NAMES.index(name)] for name in TERM_NAMES}
        for units in units_of(rows, TERMS)
    )
    assert through["written_beyond_l1"] > 0 and not through["non_temporal_stores"]
    assert not past["written_beyond_l1"] and not past["written_beyond_l2"]
    assert past["non_temporal_stores"] == pytest.approx(4 * 2048 * 2048 / 16, rel=1e-5)
    assert past["beyond_l1"] < through["beyond_l1"]
