"""The running maximum of a softmax, and what is subtracted before its exponentials."""

from __future__ import annotations

from math import inf

from tuner.workload.dtypes import DType
from tuner.workload.expression import Binary, Const, Scalar, Select


def greater(value: Scalar, highest: Scalar) -> Scalar:
    """The greater one. A NaN is left out: its exponential is NaN too, whatever is subtracted."""
    return Select(Binary("gt", value, highest), value, highest)


def subtrahend(peak: Scalar, dtype: DType) -> Scalar:
    """The peak; 0 where all so far are minus infinity, so that their exponentials are zero."""
    return Select(Binary("eq", peak, Const(-inf, dtype)), Const(0.0, dtype), peak)
