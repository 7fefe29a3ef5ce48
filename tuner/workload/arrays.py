"""The NumPy dtypes of the tree's dtypes, and those in which the reference carries values."""

from __future__ import annotations

from typing import Any, get_args

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tuner.workload.dtypes import UNSIGNED, ByteFloat
from tuner.workload.expression import Bitcast


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype of that name; bfloat16 and floats of 8 bits are those of ml_dtypes."""
    if dtype == "bfloat16" or dtype in get_args(ByteFloat):
        named: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype))
        return named
    return np.dtype(dtype)


def carrier(dtype: str) -> np.dtype[Any]:
    """The dtype of the arrays that stand for values of `dtype` in the reference.

    float64 for floats, uint32 and uint64 for themselves, since their arithmetic wraps
    around; int64 for other integers.
    """
    if dtype == "bool" or dtype in UNSIGNED:
        return np.dtype(dtype)
    return np.dtype(np.float64 if "float" in dtype else np.int64)


def of_bits(bits: NDArray[Any], factor: Bitcast) -> NDArray[Any]:
    """The numbers that bits of the cast's source dtype stand for, in the carrier of its dtype."""
    narrow = bits.astype(numpy_dtype(factor.source)).view(numpy_dtype(factor.dtype))
    return np.asarray(narrow.astype(carrier(factor.dtype)))
