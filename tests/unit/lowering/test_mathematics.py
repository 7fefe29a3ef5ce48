"""The vectorisable polynomials against float64: within 4 ulp on a dense sample, right at the special values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray

from tuner.lowering.module import module
from tuner.spaces.program import Block, Program
from tuner.workload.expression import Axis, Read, Tensor, Unary, UnaryOp, Var

ULP_LIMIT = 4


def run(op: UnaryOp, x: NDArray[np.float32]) -> NDArray[np.float32]:
    shape = x.shape
    block = Block(
        name="Y",
        axes=(Axis(name="i", extent=shape[0]),),
        buffer="Y",
        indices=(Var("i"),),
        body=Unary(op, Read("X", (Var("i"),))),
        mathematics="polynomial",
    )
    program = Program(
        inputs=(Tensor(name="X", shape=shape, dtype="float32"),),
        outputs=(Tensor(name="Y", shape=shape, dtype="float32"),),
        buffers=(),
        blocks=(block,),
    )
    library = tvm.tirx.build(module(program, "f"), target=tvm.target.Target({"kind": "llvm"}))
    out = tvm.runtime.tensor(np.empty(shape, np.float32))
    library["f"](tvm.runtime.tensor(x), out)
    got: NDArray[np.float32] = out.numpy()
    return got


REFERENCE: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "exp": np.exp,
    "tanh": np.tanh,
    "log": np.log,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
}
SAMPLES = {
    "exp": np.linspace(-87.3, 88.7, 200_001),
    "tanh": np.concatenate([np.linspace(-10, 10, 100_001), np.geomspace(1e-30, 1, 50_000)]),
    "log": np.concatenate([np.geomspace(1e-44, 3e38, 100_000), np.linspace(0.5, 2, 100_001)]),
    "erf": np.concatenate([np.linspace(-5, 5, 100_001), np.geomspace(1e-30, 1, 50_000)]),
}


@pytest.mark.parametrize("op", ["exp", "tanh", "log", "erf"])
def test_within_four_ulp(op: UnaryOp) -> None:
    x = SAMPLES[op].astype(np.float32)
    want = REFERENCE[op](x.astype(np.float64))
    ulp = np.spacing(np.abs(want.astype(np.float32)).clip(np.finfo(np.float32).tiny)).astype(np.float64)
    worst = np.max(np.abs(run(op, x).astype(np.float64) - want) / ulp)
    assert worst <= ULP_LIMIT, f"{op} is {worst:.2f} ulp off"


@pytest.mark.parametrize(
    ("op", "given", "wanted"),
    [
        ("exp", [-math.inf, math.inf, math.nan, 0.0, -1000.0, 1000.0], [0.0, math.inf, math.nan, 1.0, 0.0, math.inf]),
        ("tanh", [-math.inf, math.inf, math.nan, 0.0, -100.0], [-1.0, 1.0, math.nan, 0.0, -1.0]),
        ("erf", [-math.inf, math.inf, math.nan, 0.0, -100.0], [-1.0, 1.0, math.nan, 0.0, -1.0]),
        ("log", [0.0, math.inf, math.nan, 1.0, -1.0], [-math.inf, math.inf, math.nan, 0.0, math.nan]),
    ],
)
def test_special_values(op: UnaryOp, given: list[float], wanted: list[float]) -> None:
    np.testing.assert_array_equal(run(op, np.array(given, np.float32)), np.array(wanted, np.float32))
