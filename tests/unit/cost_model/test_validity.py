"""The validity filter learns where candidates fail, and says nothing before it knows."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.cost_model.validity import ValidityFilter

X = np.random.default_rng(0).random((300, 8)).astype(np.float32)


@pytest.mark.parametrize("failures", [0, 2, 298, 300])
def test_it_stays_open_until_it_has_seen_some_of_both(failures: int) -> None:
    validity = ValidityFilter()
    validity.fit(X, (np.arange(300) < failures).astype(np.float32))
    assert (validity.penalty(X) == 0).all()


def test_it_penalises_the_region_that_fails() -> None:
    validity = ValidityFilter()
    validity.fit(X, ((X[:, 2] > 0.8) & (X[:, 5] > 0.3)).astype(np.float32))
    unseen = np.random.default_rng(1).random((2000, 8)).astype(np.float32)
    failing = (unseen[:, 2] > 0.85) & (unseen[:, 5] > 0.35)
    safe = (unseen[:, 2] < 0.75) | (unseen[:, 5] < 0.25)
    penalty = validity.penalty(unseen)
    assert np.median(penalty[failing]) < -1.0
    assert np.median(penalty[safe]) > -0.1
    assert penalty.min() >= np.log(0.01) - 1e-3, "nothing is excluded for ever"
