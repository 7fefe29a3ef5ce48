"""The plot of the cost model's scores against measured times."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.api.dashboard.charts import plots
from tuner.api.dashboard.history import Predictions


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionPlot:
    """`svg` is None where fewer than two trials have a score of the trained model."""

    svg: str | None
    shown: int  # trials in the drawing
    left_out: int  # trials scored before the first training

    @property
    def caption(self) -> str:
        if not self.shown + self.left_out:
            return "No predictions were recorded for these trials."
        if self.svg is None:
            return "Fewer than two trials were scored by a model trained on this job."
        words = (
            f"{self.shown:,} trials that the trained model had scored before they were measured."
        )
        return (
            f"{words} {self.left_out:,} before its first training are left out: "
            f"the estimate scored them, on another scale."
            if self.left_out
            else words
        )


def prediction_plot(predictions: Predictions) -> PredictionPlot:
    trained = predictions.trained
    shown = int(trained.sum())
    scores, medians_s = predictions.scores[trained], predictions.medians_s[trained]
    return PredictionPlot(
        svg=plots.scatter(scores.tolist(), medians_s.tolist()) if shown >= 2 else None,
        shown=shown,
        left_out=len(trained) - shown,
    )
