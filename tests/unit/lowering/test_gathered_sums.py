"""Sums of gathered products take their elements one by one, and none outside."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import tvm
from tvm.tirx.compilation_pipeline import get_tir_pipeline
from tvm.tirx.transform import BindTarget

from tests.support.targets import ZEN5, host_target
from tuner.lowering.compiler import build
from tuner.lowering.passes.gathered_sums import sum_gathered
from tuner.lowering.passes.pipeline import register_pipeline
from tuner.lowering.passes.ragged_loops import cut_ragged_loops
from tuner.lowering.schedule import schedule
from tuner.spaces.by_target import cpu_space
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

OFFSETS = """
kernel k(P: i32[6] splits 100, J: i32[100] in 0:40, A: f32[100], X: f32[40]) -> (Y: f32[5]) {
  Y[i] += A[e] * X[39 - J[e]] for e in P[i]:P[i + 1]
}"""
SQUARES = """
kernel k(P: i32[6] splits 100, A: f32[100]) -> (Y: f32[5]) {
  Y[i] += A[e] * A[e] for e in P[i]:P[i + 1]
}"""


def summed(workload: Workload, core: str) -> str:
    """The loops of a sum along places on a core of x86-64."""
    program = cpu_space(workload, ZEN5, 1).program({"sketch": "Y:ragged_e"})
    target = tvm.target.Target({"kind": "llvm", "mcpu": core, "mtriple": "x86_64-linux-gnu"})
    lower, _, _ = get_tir_pipeline(register_pipeline())
    module = lower(BindTarget(target.with_host(target))(schedule(program, "k").mod))
    return str(sum_gathered(cut_ragged_loops(module)).script())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_a_product_of_gathered_elements_is_one_call(dtype: str, index: str) -> None:
    workload = parse_spec(f"spmv:M=5,N=40,density=0.5,dtype={dtype},index={index}")
    assert f'"tuner_gathered_sum_{dtype}_{index}"' in summed(workload, "znver4")
    assert "gathered_sum" not in summed(workload, "x86-64-v3")  # without masks


@pytest.mark.parametrize("text", [OFFSETS, SQUARES], ids=["offsets", "squares"])
def test_other_sums_stay_loops(text: str) -> None:
    assert "gathered_sum" not in summed(workload_from_notation(text, {}), "znver4")


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_indices_outside_are_clamped(index: str) -> None:
    """Kernels read no other memory, whatever they are called with, as calls or as loops."""
    target = host_target()
    workload = parse_spec(f"spmv:M=5,N=40,density=0.5,index={index}")
    program = cpu_space(workload, target, 1).program({"sketch": "Y:ragged_e"})
    kernel = build(schedule(program, "k").mod, target)["k"]
    rng = np.random.default_rng(0)
    pointers = np.array([0, 0, 16, 53, 54, 100], index)
    columns = rng.integers(0, 40, 100).astype(index)
    limits = np.iinfo(index)
    columns[[3, 40, 53, 70, 99]] = -1, 40, limits.max, limits.min, 10**6
    values, x = rng.standard_normal(100), rng.standard_normal(40)
    out = tvm.runtime.tensor(np.zeros(5, np.float32))
    given = (pointers, columns, values.astype(np.float32), x.astype(np.float32))
    kernel(*map(tvm.runtime.tensor, given), out)
    products = values * x[np.clip(columns, 0, 39)]
    want = [products[low:high].sum() for low, high in pairwise(pointers)]
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-5, atol=1e-5)
