"""The callable on NumPy arrays: copies what the kernel could not take, and checks
everything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tuner.runtime.loader import DTypeError, Library, TunedFunction, aligned_empty
from tuner.runtime.signature import ShapeError


@pytest.fixture
def double(library: Callable[..., Library]) -> TunedFunction:
    return library("double").function("do_double")


class Dlpack:
    """An array of another package, as far as NumPy sees."""

    def __init__(self, array: np.ndarray[Any, np.dtype[Any]]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_aligned_misaligned_and_strided_inputs_give_the_same(double: TunedFunction) -> None:
    values = np.arange(1024, dtype=np.float32)
    backing = aligned_empty((2049,), "float32")
    backing[1:1025] = values
    strided = np.repeat(values, 2)[::2]
    for given in (values, backing[1:1025], strided, Dlpack(values)):
        np.testing.assert_array_equal(double(given), 2 * values)


def test_outputs_are_written_in_place_through_a_copy_where_needed(double: TunedFunction) -> None:
    values = np.arange(1024, dtype=np.float32)
    backing = aligned_empty((4096,), "float32")
    for out in (backing[:1024], backing[3:1027], backing[::4]):
        assert double(values, out=out) is out
        np.testing.assert_array_equal(out, 2 * values)


def test_an_input_that_is_the_output_is_copied_first(double: TunedFunction) -> None:
    buffer = aligned_empty((1024,), "float32")
    buffer[:] = 3
    double(buffer, out=buffer)
    assert (buffer == 6).all()


def test_a_bfloat16_of_an_extension_is_taken_as_it_is(double: TunedFunction) -> None:
    library, values = double.library, np.arange(1024, dtype=np.float32)
    pairs = [  # the same bytes
        replace(argument, dtype="bfloat16", shape=(2048,))
        for argument in double.signature.arguments
    ]
    library.signatures = {"do_double": replace(double.signature, arguments=tuple(pairs))}
    given, out = aligned_empty((1024,), "float32"), aligned_empty((1024,), "float32")
    given[:] = values
    library.call("do_double", [array.view(ml_dtypes.bfloat16) for array in (given, out)])
    np.testing.assert_array_equal(out, 2 * values)


def test_wrong_arguments_name_what_is_wrong(double: TunedFunction) -> None:
    values = np.zeros(1024, np.float32)
    with pytest.raises(DTypeError, match="X is a list, not an array"):
        double([1.0] * 1024)
    with pytest.raises(DTypeError, match="X has dtype float64"):
        double(np.zeros(1024))
    with pytest.raises(ShapeError, match="X has shape"):
        double(np.zeros((2, 512), np.float32))
    with pytest.raises(ShapeError, match="takes 1 inputs"):
        double(values, values)
    frozen = values.copy()
    frozen.flags.writeable = False
    with pytest.raises(ShapeError, match="read-only"):
        double(values, out=frozen)
    with pytest.raises(ShapeError, match="1 outputs, got 2"):
        double(values, out=[values, values])


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "bool"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 3, 4)])
def test_aligned_arrays(dtype: str, shape: tuple[int, ...]) -> None:
    array = aligned_empty(shape, dtype)
    assert array.shape == shape
    assert array.ctypes.data % 64 == 0
    assert array.flags.c_contiguous
    assert array.flags.writeable
