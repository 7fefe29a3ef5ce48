"""The vectorisable polynomials against float64: within 4 ulp on a dense sample, right
at the special values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import ml_dtypes
import numpy as np
import pytest
import tvm
from numpy.typing import NDArray

from tuner.lowering.module import module
from tuner.spaces.program.program import Block, Program
from tuner.workload.dtypes import DType
from tuner.workload.expression import Axis, Cast, Read, Tensor, Unary, UnaryOp, Var

ULP_LIMIT = 4


def built(op: UnaryOp, extent: int, dtype: DType) -> tvm.runtime.Module:
    """`f(X, Y)`: `op` of each element of X, computed in float32."""
    x = Read("X", (Var("i"),))
    block = Block(
        name="Y",
        axes=(Axis(name="i", extent=extent),),
        buffer="Y",
        indices=(Var("i"),),
        body=Unary(op, x if dtype == "float32" else Cast("float32", x)),
        math_functions="polynomial",
    )
    program = Program(
        inputs=(Tensor(name="X", shape=(extent,), dtype=dtype),),
        outputs=(Tensor(name="Y", shape=(extent,), dtype="float32"),),
        buffers=(),
        blocks=(block,),
    )
    return tvm.tirx.build(module(program, "f"), target=tvm.target.Target({"kind": "llvm"}))


def run(op: UnaryOp, x: NDArray[np.float32]) -> NDArray[np.float32]:
    out = tvm.runtime.tensor(np.empty(x.shape, np.float32))
    built(op, len(x), "float32")["f"](tvm.runtime.tensor(x), out)
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
    "erf": np.concatenate(
        [np.linspace(-5, 5, 100_001), np.geomspace(1e-30, 1, 50_000), np.linspace(3.6, 4, 100_001)]
    ),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("op", ["exp", "tanh", "log", "erf"])
def test_of_narrow_floats(op: UnaryOp, dtype: DType) -> None:
    """A pass of TVM's loses track of bfloat16 buffers in named values: none are named there."""
    x = np.linspace(0.1, 3.0, 64).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16)
    out = tvm.runtime.tensor(np.empty(64, np.float32))
    built(op, 64, dtype)["f"](tvm.runtime.tensor(x), out)
    assert out.numpy() == pytest.approx(REFERENCE[op](x.astype(np.float64)), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("op", ["exp", "tanh", "log", "erf"])
def test_within_four_ulp(op: UnaryOp) -> None:
    x = SAMPLES[op].astype(np.float32)
    want = REFERENCE[op](x.astype(np.float64))
    ulp = np.spacing(np.abs(want.astype(np.float32)).clip(np.finfo(np.float32).tiny)).astype(
        np.float64
    )
    worst = np.max(np.abs(run(op, x).astype(np.float64) - want) / ulp)
    assert worst <= ULP_LIMIT, f"{op} is {worst:.2f} ulp off"


@pytest.mark.parametrize(
    ("op", "given", "expected"),
    [
        (
            "exp",
            [-math.inf, math.inf, math.nan, 0.0, -1000.0, 1000.0],
            [0.0, math.inf, math.nan, 1.0, 0.0, math.inf],
        ),
        ("tanh", [-math.inf, math.inf, math.nan, 0.0, -100.0], [-1.0, 1.0, math.nan, 0.0, -1.0]),
        ("erf", [-math.inf, math.inf, math.nan, 0.0, -100.0], [-1.0, 1.0, math.nan, 0.0, -1.0]),
        (
            "log",
            [0.0, math.inf, math.nan, 1.0, -1.0],
            [-math.inf, math.inf, math.nan, 0.0, math.nan],
        ),
    ],
)
def test_special_values(op: UnaryOp, given: list[float], expected: list[float]) -> None:
    np.testing.assert_array_equal(
        run(op, np.array(given, np.float32)), np.array(expected, np.float32)
    )


def test_exp_is_right_up_to_the_last_number_on_either_side() -> None:
    low, high = np.float32(-87.33654), np.float32(88.72283)
    beyond = [np.nextafter(low, np.float32(-100)), np.nextafter(high, np.float32(100))]
    assert list(run("exp", np.array(beyond, np.float32))) == [0.0, math.inf]
    edges = np.array(
        [low, np.nextafter(low, np.float32(0)), np.nextafter(high, np.float32(0)), high], np.float32
    )
    np.testing.assert_allclose(run("exp", edges), np.exp(edges.astype(np.float64)), rtol=2.0**-22)


@pytest.mark.parametrize("op", ["tanh", "erf"])
def test_nothing_is_beyond_one_nor_nothing_negative(op: UnaryOp) -> None:
    assert np.abs(run(op, SAMPLES[op].astype(np.float32))).max() == 1.0
    assert not np.signbit(run(op, np.zeros(1, np.float32)))


@pytest.mark.parametrize("op", ["exp", "tanh", "log", "erf"])
def test_no_bits_of_a_nan_are_taken_for_a_number(op: UnaryOp) -> None:
    patterns = np.concatenate(
        [np.arange(0x7F800001, 0x80000000, 4099), np.arange(0xFF800001, 0x100000000, 4099)]
    )
    assert np.isnan(run(op, patterns.astype(np.uint32).view(np.float32))).all()
