"""Batches are chosen by score, varied in proportion to the weight, on any scale of scores."""

from __future__ import annotations

import numpy as np

from tuner.search.diversity import choose

RNG = np.random.default_rng(0)
POINTS = RNG.integers(0, 6, size=(200, 5)).astype(np.int32)
SCORES = RNG.standard_normal(200).astype(np.float32)


def shown(chosen: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    return sum(len(np.unique(POINTS[chosen, column])) for column in range(5))


def test_without_weight_it_is_the_order_of_scores() -> None:
    assert (
        choose(POINTS, SCORES, count=20, weight=0.0).tolist() == np.argsort(-SCORES)[:20].tolist()
    )


def test_the_best_comes_first_at_any_weight() -> None:
    assert choose(POINTS, SCORES, count=5, weight=3.0)[0] == np.argmax(SCORES)


def test_weight_buys_values_not_yet_shown_and_costs_score() -> None:
    plain, varied = (choose(POINTS, SCORES, count=8, weight=weight) for weight in (0.0, 3.0))
    assert shown(varied) > shown(plain)
    assert SCORES[varied].mean() < SCORES[plain].mean()
    assert SCORES[varied].mean() > SCORES.mean() + 0.5, "novelty must not drown the score"


def test_the_choice_does_not_depend_on_the_scale_of_scores() -> None:
    first = choose(POINTS, SCORES, count=30, weight=0.5)
    assert np.array_equal(first, choose(POINTS, 1000 * SCORES + 7, count=30, weight=0.5))


def test_each_row_is_chosen_once_and_no_more_than_there_are() -> None:
    assert sorted(choose(POINTS[:7], SCORES[:7], count=50, weight=0.5).tolist()) == list(range(7))
    assert len(choose(POINTS[:0], SCORES[:0], count=5, weight=0.5)) == 0


def test_equal_scores_are_chosen_by_novelty_alone() -> None:
    chosen = choose(POINTS, np.zeros(200, np.float32), count=12, weight=1.0)
    assert shown(chosen) == sum(len(np.unique(POINTS[:, column])) for column in range(5))
