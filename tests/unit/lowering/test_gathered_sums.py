"""Sums of gathered products take their elements by gathers or one by one, and none outside."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray
from tvm.tirx.compilation_pipeline import get_tir_pipeline
from tvm.tirx.transform import BindTarget

from tests.support.targets import ZEN5, host_target
from tuner.lowering.compiler import build
from tuner.lowering.passes.gathered_sums import sum_gathered
from tuner.lowering.passes.pipeline import register_pipeline
from tuner.lowering.passes.ragged_loops import cut_ragged_loops
from tuner.lowering.schedule import schedule
from tuner.spaces.by_target import cpu_space
from tuner.target.detect import parse_target
from tuner.target.target import Target
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

WAYS = {"ragged_e": "gathers", "ragged_e_loads": "loads"}
OFFSETS = """
kernel k(P: i32[6] splits 100, J: i32[100] in 0:40, A: f32[100], X: f32[40]) -> (Y: f32[5]) {
  Y[i] += A[e] * X[39 - J[e]] for e in P[i]:P[i + 1]
}"""
SQUARES = """
kernel k(P: i32[6] splits 100, A: f32[100]) -> (Y: f32[5]) {
  Y[i] += A[e] * A[e] for e in P[i]:P[i + 1]
}"""
PRODUCT = """
kernel k(P: {0}[10] splits 100, J: {0}[100] in 0:40, A: f32[100], X: f32[40]) -> (Y: f32[9]) {{
  Y[i] += A[e] * X[J[e]] for e in P[i]:P[i + 1]
}}"""
# Empty rows, rows within the first vector, shorter than a vector, as long as some, and longer.
POINTERS = [0, 0, 3, 16, 53, 54, 54, 63, 95, 100]


def summed(workload: Workload, core: str, sketch: str = "ragged_e") -> str:
    """The loops of a sum along places on a core of x86-64."""
    program = cpu_space(workload, ZEN5, 1).program({"sketch": f"Y:{sketch}"})
    target = tvm.target.Target({"kind": "llvm", "mcpu": core, "mtriple": "x86_64-linux-gnu"})
    lower, _, _ = get_tir_pipeline(register_pipeline())
    module = lower(BindTarget(target.with_host(target))(schedule(program, "k").mod))
    return str(sum_gathered(cut_ragged_loops(module)).script())


@pytest.mark.parametrize("sketch", WAYS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_a_product_of_gathered_elements_is_one_call(sketch: str, dtype: str, index: str) -> None:
    workload = parse_spec(f"spmv:M=5,N=40,density=0.5,dtype={dtype},index={index}")
    for core in ("znver4", "x86-64-v3"):
        name = f"tuner_sum_by_{WAYS[sketch]}_{dtype}_{index}"
        assert f'"{name}"' in summed(workload, core, sketch)
    assert "tuner_sum" not in summed(workload, "x86-64", sketch)  # without gathers


@pytest.mark.parametrize("text", [OFFSETS, SQUARES], ids=["offsets", "squares"])
def test_other_sums_stay_loops(text: str) -> None:
    assert "tuner_sum" not in summed(workload_from_notation(text, {}), "znver4")


def test_elements_are_loaded_one_by_one_where_there_is_an_instruction_beside() -> None:
    gathered = parse_spec("spmv:M=5,N=40,density=0.5")
    assert [*cpu_space(gathered, ZEN5, 1).sketches] == [
        "Y:ragged",
        "Y:ragged_e_loads",
        "Y:ragged_e",
    ]
    squares = workload_from_notation(SQUARES, {})
    assert [*cpu_space(squares, ZEN5, 1).sketches] == ["Y:ragged", "Y:ragged_e"]


@pytest.fixture(params=["host", "cpu:x86-64-v3"])
def target(request: pytest.FixtureRequest) -> Target:
    """This machine, and a poorer one that it can stand in for."""
    if request.param == "host":
        return host_target()
    if not {"avx2", "fma"} <= set(host_target().isa):
        pytest.skip(f"this CPU lacks what {request.param} has")
    return parse_target(request.param)


def product(
    target: Target, sketch: str, index: str, columns: NDArray[np.int64], x: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """What a kernel computes of rows of random values, and what it is to compute."""
    workload = workload_from_notation(PRODUCT.format({"int32": "i32", "int64": "i64"}[index]), {})
    program = cpu_space(workload, ZEN5, 1).program({"sketch": f"Y:{sketch}"})
    kernel = build(schedule(program, "k").mod, target)["k"]
    pointers, indices = np.array(POINTERS, index), columns.astype(index)
    values = np.random.default_rng(1).standard_normal(100).astype(np.float32)
    out = tvm.runtime.tensor(np.full(9, np.nan, np.float32))
    kernel(*map(tvm.runtime.tensor, (pointers, indices, values, x)), out)
    products = values * x.astype(np.float64)[np.clip(indices, 0, 39)]
    return out.numpy(), np.array([products[low:high].sum() for low, high in pairwise(pointers)])


@pytest.mark.parametrize("sketch", WAYS)
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_indices_outside_are_clamped(target: Target, sketch: str, index: str) -> None:
    """Kernels read no other memory, whatever they are called with, as calls or as loops."""
    rng, limits = np.random.default_rng(0), np.iinfo(index)
    columns = rng.integers(0, 40, 100)
    columns[[1, 3, 40, 53, 70, 99]] = -1, 40, limits.max, limits.min, 10**6, -5
    got, want = product(target, sketch, index, columns, rng.standard_normal(40).astype(np.float32))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sketch", WAYS)
def test_a_row_has_nothing_of_the_rows_beside_it(target: Target, sketch: str) -> None:
    rng = np.random.default_rng(0)
    columns, x = rng.integers(1, 40, 100), rng.standard_normal(40).astype(np.float32)
    x[0] = np.inf
    columns[[2, 16, 52, 94]] = 0  # of the rows from 0, 16 and 63 on
    got, want = product(target, sketch, "int32", columns, x)
    assert np.flatnonzero(~np.isfinite(want)).tolist() == [1, 3, 7]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
