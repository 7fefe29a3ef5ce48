"""The operations on batches give what NumPy's own would."""

from __future__ import annotations

import numpy as np

from tuner.cost_model.arrays import either, products_before

RNG = np.random.default_rng(0)


def test_either_is_exactly_the_one_or_the_other() -> None:
    mask, first, second = (
        RNG.random((3, 50)) < 0.5,
        *RNG.lognormal(0, 20, (2, 3, 50)).astype(np.float32),
    )
    assert np.array_equal(either(mask, first, second), np.where(mask, first, second))
    chosen = either(mask, 1.0, second)
    assert (
        np.array_equal(chosen, np.where(mask, np.float32(1), second)) and chosen.dtype == np.float32
    )


def test_products_before_a_level_leave_it_out() -> None:
    levels = RNG.integers(1, 9, (4, 50)).astype(np.float32)
    products = products_before(levels)
    assert products.shape == (5, 50) and (products[0] == 1).all()
    assert np.array_equal(products[1:], np.cumprod(levels, axis=0))
