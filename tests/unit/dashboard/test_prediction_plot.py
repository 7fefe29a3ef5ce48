"""The plot of scores: only those of the trained model share its axis."""

from __future__ import annotations

import numpy as np

from tuner.api.dashboard.history import UNTRAINED, Predictions
from tuner.api.dashboard.prediction_plot import prediction_plot


def predictions(rounds: list[int], scores: list[float]) -> Predictions:
    return Predictions(
        numbers=np.arange(len(rounds)),
        rounds=np.array(rounds, np.int64),
        scores=np.array(scores, np.float64),
        medians_s=np.linspace(2e-3, 1e-3, len(rounds)),
    )


def test_scores_from_before_the_first_training_are_left_out_and_counted() -> None:
    plot = prediction_plot(predictions([UNTRAINED, UNTRAINED, 1, 1, 2], [-150.0, -90.0, 0, 1, 2]))
    assert (plot.shown, plot.left_out) == (3, 2)
    assert plot.svg is not None
    assert "-150" not in plot.svg and "-90" not in plot.svg
    assert "of 3 trials" in plot.svg
    assert plot.caption.startswith("3 trials that the trained model had scored")
    assert "2 before its first training are left out" in plot.caption


def test_scores_of_an_unknown_round_count_as_the_trained_models() -> None:
    plot = prediction_plot(predictions([-1, -1], [0.0, 1.0]))
    assert (plot.shown, plot.left_out) == (2, 0)
    assert "left out" not in plot.caption


def test_too_few_scores_give_words_and_no_drawing() -> None:
    untrained = prediction_plot(predictions([UNTRAINED, UNTRAINED, 1], [-3.0, -2.0, 1.0]))
    assert untrained.svg is None
    assert untrained.caption.startswith("Fewer than two trials")
    assert prediction_plot(predictions([], [])).caption.startswith("No predictions were recorded")
