"""Metrics of a ranking against what their definitions say, spelled out in loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.cost_model.metrics import pairwise_accuracy, recall_at, spearman


@given(st.integers(0, 2**32 - 1), st.integers(2, 30))
def test_pairwise_accuracy_counts_pairs_of_one_group_five_percent_apart(
    seed: int, rows: int
) -> None:
    rng = np.random.default_rng(seed)
    labels = np.where(rng.random(rows) < 0.2, 0.0, rng.uniform(0.5, 1, rows))
    scores, groups = rng.integers(0, 5, rows).astype(float), rng.integers(0, 3, rows)
    right = total = 0.0
    for i in range(rows):
        for j in range(rows):
            if (
                groups[i] == groups[j]
                and min(labels[i], labels[j]) > 0
                and labels[i] >= 1.05 * labels[j]
            ):
                total += 1
                right += 1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0
    assert pairwise_accuracy(scores, labels, groups) == pytest.approx(
        right / total if total else 0.5
    )


def test_pairwise_accuracy_over_more_rows_than_a_block() -> None:
    labels = np.linspace(0.01, 1, 2500)
    assert pairwise_accuracy(labels, labels) == 1.0
    assert pairwise_accuracy(-labels, labels) == 0.0
    assert pairwise_accuracy(np.zeros(2500), labels) == 0.5


def test_recall_counts_the_best_among_the_highest_scores() -> None:
    labels = np.array([1.0, 0.9, 0.8, 0.0, 0.1])
    assert recall_at(2, np.array([5, 1, 4, 0, 0]), labels) == 0.5
    assert recall_at(3, labels, labels) == 1.0
    assert recall_at(30, labels, labels) == 1.0, "k is lowered to the number of valid rows"
    assert recall_at(3, labels, np.zeros(5)) == 0.0


def test_spearman_is_one_for_any_monotone_relation_and_ties_share_ranks() -> None:
    x = np.array([3.0, 1.0, 2.0, 7.0])
    assert spearman(x, np.exp(x)) == pytest.approx(1.0)
    assert spearman(x, -x) == pytest.approx(-1.0)
    assert spearman(np.array([1, 1, 2, 3]), np.array([1, 2, 3, 4])) == pytest.approx(0.9486833)


@pytest.mark.parametrize(
    ("scores", "labels"), [([1, 2], [1, 2]), ([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [0, 0, 0])]
)
def test_spearman_says_nothing_where_there_is_no_order(
    scores: list[float], labels: list[float]
) -> None:
    assert spearman(scores, labels) is None
