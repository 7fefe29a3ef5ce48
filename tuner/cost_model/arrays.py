"""Arithmetic on a whole batch of configs, which come last in every array: the few
operations that NumPy itself does slowly.

In single precision, which takes less than half of the time: counts are exact up to 2^24
and beyond that as exact as an estimate of cycles needs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[
    np.floating
]  # float32 all, which NumPy's types lose sight of where an integer divides
Mask = NDArray[np.bool_]


def either(mask: Mask, one: Floats | float, other: Floats | float) -> Floats:
    """`one` where `mask` holds and `other` elsewhere; finite, of shapes that broadcast.
    numpy.where branches at each number, which takes three times as long where configs
    are random."""
    weight = mask.astype(np.float32)
    found: Floats = one * weight + other * (1 - weight)
    return found


def products_before(levels: Floats) -> Floats:
    """Product of the levels (levels, n) outside each one, and of all; shape (levels +
    1, n). numpy.cumprod walks down one config after the other."""
    found = np.ones((len(levels) + 1, *levels.shape[1:]), np.float32)
    for at, level in enumerate(levels):
        np.multiply(found[at], level, out=found[at + 1])
    return found
