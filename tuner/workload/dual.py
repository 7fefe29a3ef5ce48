"""Values with the magnitude of each element beside it.

The magnitude m of a value v is a first-order condition number: rounding every operation
relatively by u moves v by about u * m at most. It equals the same expression on
absolute values for sums and products (Higham, Accuracy and Stability, ch. 3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tuner.workload.expression import Const, Read
from tuner.workload.windows import Array


@dataclass(frozen=True, slots=True)
class Dual:
    """Values, and their magnitudes where those are tracked.

    A magnitude of None stands for the absolute values.
    """

    value: Array
    magnitude: Array | None = None

    @property
    def size(self) -> Array:
        return finite_size(self.value) if self.magnitude is None else self.magnitude


Tensors = Mapping[str, Dual]


def size_of(read: Read) -> Read:
    """The same read of a tensor of magnitudes.

    Its padding is the absolute value of the constant, or 0 where that is infinite.
    """
    if read.pad is None:
        return read
    size = abs(float(read.pad.value))
    return Read(read.tensor, read.indices, Const(0.0 if math.isinf(size) else size, "float64"))


def finite_size(value: Array) -> Array:
    """Absolute values as float64, with 0 for infinities."""
    size: Array = np.asarray(np.abs(value), np.float64)  # always a copy
    if not np.isfinite(size.max(initial=0.0)):
        size[np.isinf(size)] = 0.0
    return size
