"""Tests of the loader that stands in exported packages."""

import pytest

from tuner.runtime.loader import ALIGNMENT, aligned_empty


@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 4), (4, 0), (3, 5)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "bfloat16"])
def test_arrays_are_aligned_whatever_their_extents(shape: tuple[int, ...], dtype: str) -> None:
    for _ in range(16):  # where one begins is chance
        array = aligned_empty(shape, dtype)
        assert array.ctypes.data % ALIGNMENT == 0
        assert array.shape == shape and array.flags.c_contiguous
