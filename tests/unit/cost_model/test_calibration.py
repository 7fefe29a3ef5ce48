"""Costs of the terms of the estimated cycles: learned from times of several workloads,
near the start where these say nothing."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tuner.cost_model.cpu.calibration import Floats, estimate, fit, units_of
from tuner.cost_model.cpu.cycles import ROUND_COSTS, TERM_NAMES
from tuner.cost_model.metrics import pairwise_accuracy

USED = [
    TERM_NAMES.index(name) for name in ("arithmetic", "beyond_l1", "write_back", "packed_at_root")
]


def machine(seed: int) -> Floats:
    """Made-up costs: up to four times cheaper or dearer than the round ones."""
    return ROUND_COSTS * np.exp(np.random.default_rng(seed).uniform(-1.4, 1.4, len(ROUND_COSTS)))


def workload(
    costs: Floats, seed: int, rows: int = 300, noise: float = 0.02
) -> tuple[Floats, Floats]:
    """Terms, and the labels that a machine of these costs would give; workloads differ
    a thousandfold in size."""
    rng = np.random.default_rng(seed)
    terms = np.zeros((rows, len(TERM_NAMES)))
    terms[:, USED] = rng.lognormal(0.0, 1.0, (rows, len(USED))) * 10.0 ** rng.uniform(3, 6)
    times = terms @ costs * np.exp(rng.normal(0.0, noise, rows))
    return terms, times.min() / times


def test_other_workloads_teach_the_order_of_a_new_one() -> None:
    costs = machine(1)
    terms, labels = workload(costs, 99)
    before = pairwise_accuracy(-estimate(terms, ROUND_COSTS), labels)
    after = pairwise_accuracy(
        -estimate(terms, fit([workload(costs, seed) for seed in range(16)])), labels
    )
    assert after > 0.985 and 1.0 - after < (1.0 - before) / 3


def test_workloads_weigh_alike_however_many_trials_they_have() -> None:
    many, few = workload(machine(1), 7, rows=900), workload(machine(2), 8, rows=60)
    again = np.concatenate([few[0]] * 10), np.concatenate([few[1]] * 10)
    assert np.allclose(fit([many, few]), fit([many, again]), rtol=1e-3)


def test_a_term_that_never_occurs_keeps_its_cost() -> None:
    costs = fit([workload(machine(1), seed) for seed in range(3)])
    unused = [column for column in range(len(TERM_NAMES)) if column not in USED]
    assert np.allclose(costs[unused], ROUND_COSTS[unused])


def test_failures_teach_nothing() -> None:
    terms, labels = workload(machine(2), 5)
    with_failures = (
        np.concatenate([terms, terms[:40] * 7.0]),
        np.concatenate([labels, np.zeros(40)]),
    )
    assert np.allclose(fit([(terms, labels)]), fit([with_failures]))


@pytest.mark.parametrize(
    "labels",
    [np.zeros(6), np.ones(6), np.array([1.0, 0, 0, 0, 0, 0])],
    ids=["failed", "alike", "one"],
)
def test_what_has_no_order_is_no_error(labels: NDArray[np.float64]) -> None:
    terms, _ = workload(ROUND_COSTS, 3, rows=6)
    assert np.isfinite(fit([(terms, labels)])).all()


def test_units_are_read_off_the_last_columns() -> None:
    units = np.array([[0.0, 3.0, 1e9], [1.0, 0.0, 7.0]])
    features = np.concatenate([np.full((2, 5), 4.0), np.log2(1.0 + units)], axis=1).astype(
        np.float32
    )
    assert np.allclose(units_of(features, 3), units, rtol=1e-5)
