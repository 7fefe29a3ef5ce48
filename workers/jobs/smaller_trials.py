"""Which trials race for what they need beside time: those on the front of a goal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.measure.objective import TIME, Goal, front
from tuner.measure.outcome import Timed, Trial

# Each takes the time of another finalist. More kernels on one front are hard to tell apart.
MOST = 6


def on_front(trials: Sequence[Trial], goal: Goal, beside: Sequence[Trial]) -> list[Trial]:
    """At most `MOST` trials on the front of time and the goal's other objectives.

    They are spread evenly along it, both ends among them. Without the default schedule,
    abandoned trials, and code that races already (`beside`). Empty where the goal is
    nothing that a trial tells.
    """
    if not goal.of_trials:
        return []
    racing = {_artifact(trial) for trial in beside}
    tried = [
        trial
        for trial in trials
        if isinstance(trial.outcome, Timed)
        and trial.config
        and not trial.outcome.conditions.abandoned
    ]
    best = front(tried, (TIME, *goal.of_trials), lambda trial: trial.figures)
    best = [trial for trial in best if _artifact(trial) not in racing]
    places = np.unique(np.linspace(0, len(best) - 1, min(MOST, len(best))).round().astype(int))
    return [best[place] for place in places]


def _artifact(trial: Trial) -> str | None:
    return trial.outcome.artifact if isinstance(trial.outcome, Timed) else None
