"""The NumPy dtypes of the tree's dtypes, and those in which the reference carries values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tuner.workload.expression import UNSIGNED


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype of that name; bfloat16 is that of ml_dtypes."""
    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


def carrier(dtype: str) -> np.dtype[Any]:
    """The dtype of the arrays that stand for values of `dtype` in the reference.

    float64 for floats, uint32 and uint64 for themselves, since their arithmetic wraps
    around; int64 for other integers.
    """
    if dtype == "bool" or dtype in UNSIGNED:
        return np.dtype(dtype)
    return np.dtype(np.float64 if "float" in dtype else np.int64)
