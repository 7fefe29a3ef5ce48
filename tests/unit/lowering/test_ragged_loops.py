"""Loops over the places of rows are cut, and only where that changes nothing; threads
share rows by places; sums along places become vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.tirx.compilation_pipeline import get_tir_pipeline
from tvm.tirx.transform import BindTarget
from tvm_ffi import structural_equal, structural_walk

from tests.support.targets import ZEN5
from tuner.lowering.passes.pipeline import register_pipeline
from tuner.lowering.passes.ragged_loops import cut_ragged_loops, may_reassociate
from tuner.lowering.passes.shared_rows import share_rows
from tuner.lowering.schedule import schedule
from tuner.spaces.by_target import cpu_space
from tuner.spaces.cpu.ragged import TASKS
from tuner.spaces.default_schedule import default_program
from tuner.spaces.program.program import Program
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

PLACES = 1009  # a number that no other extent is
MASKED = f"""
kernel k(P: i32[7], A: f32[{PLACES}, 32]) -> (Y: f32[6, 32]) {{
  Y[i, k] += where(P[i] <= e and e < P[i + 1], A[e, k], 0) for i in 0:6
}}"""


def lowered(program: Program) -> tvm.IRModule:
    """What TVM's pipeline makes of a program, before passes of our own."""
    lower, _, _ = get_tir_pipeline(register_pipeline())
    target = tvm.target.Target({"kind": "llvm"})
    return lower(BindTarget(target.with_host(target))(schedule(program, "k").mod))


def loops(mod: tvm.IRModule, matches: Callable[[tirx.For], bool]) -> list[tirx.For]:
    matching: list[tirx.For] = []

    def note(loop: tirx.For) -> None:
        if matches(loop):
            matching.append(loop)

    for function in mod.functions.values():
        structural_walk(function, (tirx.For, note))
    return matching


def over_all_places(loop: tirx.For) -> bool:
    return isinstance(loop.extent, tirx.IntImm) and int(loop.extent) == PLACES


def conditions(mod: tvm.IRModule) -> int:
    seen: list[Any] = []
    for function in mod.functions.values():
        structural_walk(function, (tirx.IfThenElse, seen.append))
    return len(seen)


def programs(workload: Workload) -> list[Program]:
    space = cpu_space(workload, ZEN5, 1)
    points = space.space.sample(np.random.default_rng(0), 3)
    return [
        default_program(workload),
        *(space.program(space.space.config(point)) for point in points),
    ]


@pytest.mark.parametrize(
    "spec",
    [
        f"segment_reduce:M=6,N={PLACES},D=32",
        f"segment_reduce:M=6,N={PLACES},D=32,mode=max,index=int64",
        f"spmm:M=3,N={PLACES},K=32,density={1 / 3}",
        f"spmv:M=3,N={PLACES},density={1 / 3}",
    ],
)
def test_every_loop_over_places_is_cut(spec: str) -> None:
    for program in programs(parse_spec(spec)):
        before = lowered(program)
        assert loops(before, over_all_places)
        after = cut_ragged_loops(before)
        assert not loops(after, over_all_places)
        assert conditions(after) < conditions(before)


def test_a_condition_that_a_text_writes_is_cut_too() -> None:
    for program in programs(workload_from_notation(MASKED, {})):
        assert not loops(cut_ragged_loops(lowered(program)), over_all_places)


@pytest.mark.parametrize(
    "spec",
    [
        "scatter_add:M=1009,N=7,D=32",
        "scatter_add:M=1009,N=7,D=32,dtype=bfloat16,index=int64",
        "scatter_add:M=1009,N=7,D=1,mode=min",
    ],
)
def test_of_the_loop_over_rows_what_a_term_names_is_left(spec: str) -> None:
    def over_rows(loop: tirx.For) -> bool:
        return bool(cut_on([loop.body])) and isinstance(loop.extent, tirx.IntImm)

    def cut_on(parts: list[tirx.Stmt]) -> list[tirx.EQ]:
        seen: list[tirx.EQ] = []
        for part in parts:
            structural_walk(part, (tirx.EQ, seen.append))
        return [equality for equality in seen if "J" in str(equality)]

    for program in programs(parse_spec(spec)):
        before = lowered(program)
        assert loops(before, over_rows)
        assert not loops(cut_ragged_loops(before), over_rows)


def test_tasks_of_several_threads_have_rows_of_their_own() -> None:
    space = cpu_space(parse_spec("scatter_add:M=53,N=64,D=32"), ZEN5, 2)
    program = space.program({"sketch": "Y:scatter_d", "Y.scatter_d.block_Jrow": 14})
    kind = tirx.ForKind.PARALLEL
    (shared,) = loops(lowered(program), lambda loop: loop.kind == kind)
    assert int(shared.extent) == 4


@pytest.mark.parametrize(
    "condition",
    [
        "e <= P[i] and P[i + 1] < e",
        "P[i] <= e or e < P[i + 1]",
        "P[i] <= e",
    ],
)
def test_other_conditions_leave_the_loop_alone(condition: str) -> None:
    text = MASKED.replace("P[i] <= e and e < P[i + 1]", condition)
    program = default_program(workload_from_notation(text.replace("P[i + 1]", "P[i]"), {}))
    before = lowered(program)
    assert len(loops(cut_ragged_loops(before), over_all_places)) == len(
        loops(before, over_all_places)
    )


def test_threads_share_rows_by_places() -> None:
    rows, spec = 53, "spmm:M=53,N=64,K=32,density=0.1"
    space = cpu_space(parse_spec(spec), ZEN5, 2)
    config = next(
        config
        for config in map(space.space.config, space.space.sample(np.random.default_rng(0), 99))
        if config["sketch"] == "Y:shared_k"
    )
    cut = cut_ragged_loops(lowered(space.program(config)))

    def parallel(mod: tvm.IRModule) -> list[int]:
        kind = tirx.ForKind.PARALLEL
        return [int(loop.extent) for loop in loops(mod, lambda loop: loop.kind == kind)]

    assert parallel(cut) == [rows]
    assert parallel(share_rows(cut)) == [2 * TASKS]


def test_sums_along_places_may_be_reordered_and_others_not() -> None:
    space = cpu_space(parse_spec("spmv:M=9,N=64,density=0.1"), ZEN5, 1)
    for sketch in ("ragged", "ragged_e"):
        config = {"sketch": f"Y:{sketch}"}
        scheduled = schedule(space.program(config), "k").mod
        assert may_reassociate(scheduled) == (sketch == "ragged_e")
    costly = """kernel k(P: i32[7] splits 64, A: f32[64]) -> (Y: f32[6]) {
      Y[i] += exp(A[e]) for e in P[i]:P[i + 1]
    }"""
    (name,) = cpu_space(workload_from_notation(costly, {}), ZEN5, 1).sketches
    assert name == "Y:ragged"


def test_dense_programs_are_left_as_they_are() -> None:
    for spec in ("matmul:M=32,N=32,K=32", "conv1d:N=1,W=9,CI=3,CO=5,KW=3,pad=1"):
        before = lowered(programs(parse_spec(spec))[1])
        assert structural_equal(before, cut_ragged_loops(before))
