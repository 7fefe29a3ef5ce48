"""Arithmetic on a whole batch of configs, which come last in every array.

These are the few operations that NumPy itself does slowly. They compute in single
precision, which takes less than half of the time: counts are exact up to 2^24 and
beyond that as exact as an estimate of cycles needs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# All are float32, which NumPy's types lose sight of where an integer divides.
Floats = NDArray[np.floating]
Mask = NDArray[np.bool_]


def either(mask: Mask, if_true: Floats | float, if_false: Floats | float) -> Floats:
    """`if_true` where `mask` holds and `if_false` elsewhere.

    Both are finite, of shapes that broadcast. numpy.where branches at each number,
    which takes three times as long where configs are random.
    """
    weight = mask.astype(np.float32)
    selected: Floats = if_true * weight + if_false * (1 - weight)
    return selected


def products_before(levels: Floats) -> Floats:
    """Products of the levels (levels, n) outside each one, and of all, (levels + 1, n).

    numpy.cumprod walks down one config after the other.
    """
    products = np.ones((len(levels) + 1, *levels.shape[1:]), np.float32)
    for outside, level in enumerate(levels):
        np.multiply(products[outside], level, out=products[outside + 1])
    return products
