"""Sums of products of bytes that are rounded to bytes: exact in every sketch, with halves
between two integers, saturation at both ends and zero points there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.checked_kernels import output_of
from tests.support.targets import host_target
from tuner.spaces.by_target import space_of
from tuner.workload.spec import parse_spec

LAST = {"uint8": (0, 255), "int8": (-128, 127)}


def drawn(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Both ends of the dtype's range, and what lies between."""
    least, most = LAST[dtype]
    values = rng.integers(least, most + 1, shape)
    ends = rng.choice([least, most], shape)
    return np.where(rng.random(shape) < 0.3, ends, values).astype(dtype)


def as_bytes(sums: NDArray[Any], scales: NDArray[Any], dtype: str, zero: int) -> NDArray[Any]:
    rounded = np.rint(sums * scales.astype(np.float64)) + zero
    return np.asarray(np.clip(rounded, *LAST[dtype]).astype(dtype))


@pytest.mark.parametrize(
    ("dtype", "result", "zero"), [("uint8", "uint8", 255), ("int8", "int8", -128)]
)
def test_sums_become_bytes_exactly(dtype: str, result: str, zero: int) -> None:
    spec = f"qmatmul:M=5,N=33,K=64,bias=true,dtype={dtype},result={result},y_zero={zero}"
    workload, rng = parse_spec(spec), np.random.default_rng(7)
    inputs = {"A": drawn(rng, dtype, (5, 64)), "B": drawn(rng, "int8", (64, 33))}
    products = inputs["A"].astype(np.int64) @ inputs["B"]
    # Powers of two, with which products are exact; in the first row they end in a half.
    steps = np.exp2(rng.integers(10, 14, 33)).astype(np.int64)
    inputs["S"] = (1 / steps).astype(np.float32)
    inputs["bias"] = (steps // 2 - products[0] % steps).astype(np.int32)
    sums = products + inputs["bias"]
    want = as_bytes(sums, inputs["S"], result, zero)
    assert set(LAST[result]) & set(want.flat) and len(np.unique(want)) > 20
    assert (sums[0] % steps == steps // 2).all()
    space = space_of(workload, host_target(), threads=1)
    for name in space.space.knobs[0].values:
        got = output_of(space.program({"sketch": name}), workload.expression, inputs)
        np.testing.assert_array_equal(got, want, err_msg=str(name))


def test_the_zero_point_surrounds_the_image_of_a_depthwise_convolution() -> None:
    spec = "qconv2d:N=1,H=5,W=6,CI=18,CO=18,KH=3,KW=3,pad=1,groups=18,x_zero=200,relu=true"
    workload, rng = parse_spec(spec), np.random.default_rng(8)
    x, w = drawn(rng, "uint8", (1, 5, 6, 18)), drawn(rng, "int8", (3, 3, 1, 18))
    scales = np.exp2(rng.integers(-10, -7, 18)).astype(np.float32)
    image = np.pad(x.astype(np.int64), ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=200)
    sums = sum(image[:, r : r + 5, s : s + 6] * w[r, s, 0] for r in range(3) for s in range(3))
    want = as_bytes(np.asarray(sums), scales, "uint8", 0)
    assert len(np.unique(want)) > 20
    space = space_of(workload, host_target(), threads=1)
    for name in space.space.knobs[0].values:
        inputs = {"X": x, "W": w, "S": scales}
        got = output_of(space.program({"sketch": name}), workload.expression, inputs)
        np.testing.assert_array_equal(got, want, err_msg=str(name))
