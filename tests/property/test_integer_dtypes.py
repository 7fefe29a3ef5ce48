"""Integers of every width: the reference computes what NumPy computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tuner.workload.arrays import numpy_dtype
from tuner.workload.notation import parse
from tuner.workload.reference import evaluate

Array = NDArray[Any]
SHORT = {
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
}  # fmt: skip
# What wraps in each operation is stored after each one.
OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "A[i] + B[i]": np.add,
    "A[i] - B[i]": np.subtract,
    "A[i] * B[i]": np.multiply,
    "-A[i]": lambda a, b: np.negative(a),
    "max(A[i], B[i])": np.maximum,
    "min(A[i], B[i])": np.minimum,
    "bitand(A[i], B[i])": np.bitwise_and,
    "bitor(A[i], B[i])": np.bitwise_or,
    "bitxor(A[i], B[i])": np.bitwise_xor,
    "A[i] // 7": lambda a, b: np.floor_divide(a, np.array(7, a.dtype)),
    "A[i] % 7": lambda a, b: np.mod(a, np.array(7, a.dtype)),
    "shr(A[i], 3)": lambda a, b: np.right_shift(a, np.array(3, a.dtype)),
    "shl(A[i], 3)": lambda a, b: np.left_shift(a, np.array(3, a.dtype)),
    "A[i] < B[i] ? A[i] : B[i]": np.minimum,
}


def evaluated(text: str, **arrays: Array) -> Array:
    expression = parse(text, {})
    (name,) = expression.outputs
    return evaluate(expression, arrays)[name].astype(numpy_dtype(expression.tensor(name).dtype))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, Array, Array]:
    dtype = draw(st.sampled_from(sorted(SHORT)))
    limits = np.iinfo(dtype)
    numbers = st.lists(
        st.integers(int(limits.min), int(limits.max)) | st.integers(0, 3), min_size=4, max_size=4
    )
    return dtype, np.array(draw(numbers), dtype), np.array(draw(numbers), dtype)


COMMON = settings(deadline=None, max_examples=150)


@COMMON
@given(pairs(), st.sampled_from(sorted(OPERATIONS)))
def test_operations_are_those_of_numpy(operands: tuple[str, Array, Array], text: str) -> None:
    dtype, a, b = operands
    short = SHORT[dtype]
    inputs = f"A: {short}[4], B: {short}[4]" if "B" in text else f"A: {short}[4]"
    kernel = f"kernel k({inputs}) -> (C: {short}[4]) {{ C[i] = {text} }}"
    arrays = {"A": a, "B": b} if "B" in text else {"A": a}
    with np.errstate(all="ignore"):
        right = OPERATIONS[text](a, b)
    np.testing.assert_array_equal(evaluated(kernel, **arrays), right)


@COMMON
@given(pairs(), st.sampled_from(sorted(SHORT)))
def test_conversions_between_integers_wrap(operands: tuple[str, Array, Array], to: str) -> None:
    dtype, a, _ = operands
    kernel = f"kernel k(A: {SHORT[dtype]}[4]) -> (C: {SHORT[to]}[4]) {{ C[i] = {SHORT[to]}(A[i]) }}"
    np.testing.assert_array_equal(evaluated(kernel, A=a), a.astype(to))


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
@settings(deadline=None, max_examples=30)
@given(st.data())
def test_unsigned_arithmetic_wraps_before_it_is_compared_and_divided(
    dtype: str, data: st.DataObject
) -> None:
    numbers = st.lists(st.integers(0, np.iinfo(dtype).max), min_size=3, max_size=3)
    a, b = (np.array(data.draw(numbers), dtype) for _ in range(2))
    short, seven = SHORT[dtype], np.array(7, dtype)
    head = f"kernel k(A: {short}[3], B: {short}[3])"
    with np.errstate(all="ignore"):
        compared = evaluated(f"{head} -> (C: bool[3]) {{ C[i] = A[i] - B[i] < B[i] }}", A=a, B=b)
        np.testing.assert_array_equal(compared, a - b < b)
        divided = evaluated(f"{head} -> (C: {short}[3]) {{ C[i] = (A[i] - B[i]) // 7 }}", A=a, B=b)
        np.testing.assert_array_equal(divided, (a - b) // seven)
        summed = evaluated(f"{head} -> (C: {short}[1]) {{ C[u] += A[i] * B[i] }}", A=a, B=b)
        np.testing.assert_array_equal(summed, (a * b).sum(dtype=dtype, keepdims=True))
        wide = evaluated(f"{head} -> (C: f64[3]) {{ C[i] = f64(A[i] + B[i]) }}", A=a, B=b)
        np.testing.assert_array_equal(wide, (a + b).astype(np.float64))


@COMMON
@given(st.lists(st.floats(0, 2.0**64, exclude_max=True), min_size=3, max_size=3))
def test_floats_become_uint64_up_to_its_end(numbers: list[float]) -> None:
    a = np.array(numbers)
    got = evaluated("kernel k(A: f64[3]) -> (C: u64[3]) { C[i] = u64(A[i]) }", A=a)
    np.testing.assert_array_equal(got, a.astype(np.uint64))


@pytest.mark.parametrize(
    ("source", "target", "dtype", "other"),
    [
        ("f32", "u32", np.float32, np.uint32), ("u32", "f32", np.uint32, np.float32),
        ("f64", "i64", np.float64, np.int64), ("i64", "f64", np.int64, np.float64),
        ("f16", "u16", np.float16, np.uint16), ("i16", "f16", np.int16, np.float16),
        ("i8", "u8", np.int8, np.uint8), ("u64", "i64", np.uint64, np.int64),
    ],
)  # fmt: skip
@settings(deadline=None, max_examples=20)
@given(st.binary(min_size=32, max_size=32))
def test_bitcast_takes_the_bits(
    source: str, target: str, dtype: type, other: type, content: bytes
) -> None:
    a: Array = np.frombuffer(content, dtype)
    a = a[~np.isnan(a)] if a.dtype.kind == "f" else a  # which NaN is not kept
    right: Array = a.view(other)
    if not a.size:
        return
    kernel = (
        f"kernel k(A: {source}[{a.size}]) -> (C: {target}[{a.size}]) "
        f"{{ C[i] = bitcast({target}, A[i]) }}"
    )
    np.testing.assert_array_equal(evaluated(kernel, A=a), right)
