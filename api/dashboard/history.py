"""A task's history: its best-so-far curve, predictions and the importance of its knobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from tuner.api.dashboard.charts.curve import (
    DEFAULT,
    Axes,
    Curve,
    Level,
    first_of_columns,
    record_mask,
    thinned,
)
from tuner.api.dashboard.importance import KnobImportance, importance
from tuner.cost_model.metrics import spearman
from tuner.db import charts
from tuner.db.charts import Timings
from tuner.db.engine import Session
from tuner.db.trials import StoredTrial
from tuner.measure.outcome import Timed

SAMPLE = 3000  # trials that the analysis looks at
BLOCK = 50  # of consecutive numbers, so that whole batches are seen
BATCH = 64  # trials judged together where no round was recorded
UNTRAINED = 0  # round of the trials that were scored before the model's first training


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Timed trials that the cost model scored before they were measured, by number.

    All arrays have shape (n,).
    """

    numbers: NDArray[np.int64]
    rounds: NDArray[np.int64]  # times the model had been trained; -1 where that was not recorded
    scores: NDArray[np.float64]
    medians_s: NDArray[np.float64]

    @property
    def trained(self) -> NDArray[np.bool_]:
        """Which scores come from a model trained on this job's trials, shape (n,).

        The others come from the analytical estimate and have another scale.
        """
        return np.asarray(self.rounds != UNTRAINED, np.bool_)


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    sampled: int
    knobs: Sequence[KnobImportance]
    trials: Sequence[StoredTrial]  # timed ones of the sample, fastest first
    predictions: Predictions
    # of each batch: its number, and Spearman's rank correlation of score and speed
    correlations: Sequence[tuple[int, float]]


def curve(
    session: Session,
    job_id: str,
    position: int,
    *,
    by_time: bool = False,
    levels: Sequence[Level] = (),
    started: float | None = None,
    axes: Axes = DEFAULT,
) -> tuple[Curve, Timings]:
    """The curve of a task, and all its timings.

    `started` is the POSIX time in seconds at which the time axis begins.
    """
    timed = charts.timings(session, job_id, position)
    failed = charts.failures(session, job_id, position)
    failure_numbers = np.array(sorted(number for number, _ in failed), np.int64)
    last = max([0, *timed.numbers[-1:].tolist(), *failure_numbers[-1:].tolist()])
    records = record_mask(timed.medians_s)
    top = np.flatnonzero(timed.medians_s <= slowest_of(timed, axes.top_percent))
    records_shown = top[records[top]]
    thin = thinned(
        timed.numbers[top], timed.medians_s[top], end=float(last), keep=records[top], axes=axes
    )
    kept = top[thin]
    marks = first_of_columns(failure_numbers, float(last), axes)
    numbers, record_numbers = timed.numbers[kept], timed.numbers[records_shown]
    positions, record_positions, mark_positions = (
        values.astype(np.float64) for values in (numbers, record_numbers, marks)
    )
    end = float(last)
    if by_time:
        place = _seconds(
            session, job_id, position, [*numbers.tolist(), *marks.tolist(), last], started
        )
        positions, record_positions, mark_positions = (
            np.array([place.get(int(n), 0.0) for n in some])
            for some in (numbers, record_numbers, marks)
        )
        end = max([1.0, *place.values()])
    drawn = Curve(
        total=len(timed.numbers) + len(failed),
        failed=len(failed),
        axis="time" if by_time else "trial",
        end=end,
        numbers=numbers,
        positions=positions,
        medians_s=timed.medians_s[kept],
        record_numbers=record_numbers,
        record_positions=record_positions,
        record_medians_s=timed.medians_s[records_shown],
        failure_positions=mark_positions,
        levels=levels,
        axes=axes,
    )
    return drawn, timed


def last_rank(count: int, top_percent: float) -> int:
    """The rank, from 0, of the slowest of the fastest `top_percent` of `count` trials."""
    return max(0, ceil(count * top_percent / 100) - 1)


def slowest_of(timed: Timings, top_percent: float | None) -> float:
    """The median, in seconds, of the slowest of the fastest `top_percent` of the trials.

    At least one trial is among them. Infinite without a percentage or trials.
    """
    count = len(timed.medians_s)
    if top_percent is None or not count:
        return inf
    rank = last_rank(count, top_percent)
    return float(np.partition(timed.medians_s, rank)[rank])


def _seconds(
    session: Session, job_id: str, position: int, numbers: Sequence[int], started: float | None
) -> dict[int, float]:
    moments = {
        number: moment.timestamp()
        for number, moment in charts.moments(session, job_id, position, numbers).items()
    }
    first = min(moments.values(), default=0.0)
    start = first if started is None else min(first, started)
    return {number: moment_s - start for number, moment_s in moments.items()}


def in_order(timed: Timings, total: int) -> list[float | None]:
    """Medians of all trials by number, None for failures."""
    last = int(timed.numbers[-1]) + 1 if len(timed.numbers) else 0
    values: list[float | None] = [None] * max(last, total)
    for number, median in zip(timed.numbers.tolist(), timed.medians_s.tolist(), strict=True):
        values[number] = median
    return values


def sampled_numbers(timed: Timings) -> NDArray[np.int64]:
    """Numbers of the trials to analyse.

    All of a small task; of a large one, evenly spread blocks and the fastest trials.
    """
    if len(timed.numbers) <= SAMPLE:
        return timed.numbers
    blocks = (SAMPLE - 500) // BLOCK
    starts = np.linspace(0, len(timed.numbers) - BLOCK, blocks).astype(np.int64)
    spread = timed.numbers[(starts[:, None] + np.arange(BLOCK)).ravel()]
    fastest = timed.numbers[np.argpartition(timed.medians_s, 500)[:500]]
    return np.union1d(spread, fastest)


def analysis(session: Session, job_id: str, position: int) -> Analysis:
    timed = charts.timings(session, job_id, position)
    numbers = sampled_numbers(timed)
    sample = [
        trial
        for trial in charts.some_trials(session, job_id, position, numbers.tolist())
        if trial.trial.config
    ]
    pairs = [
        (trial, trial.trial.outcome.median_s)
        for trial in sample
        if isinstance(trial.trial.outcome, Timed)
    ]
    predicted = _predictions(sample)
    return Analysis(
        sampled=len(numbers),
        knobs=importance(
            [trial.trial.config for trial, _ in pairs], [median for _, median in pairs]
        ),
        trials=[trial for trial, _ in sorted(pairs, key=lambda pair: pair[1])],
        predictions=predicted,
        correlations=correlations(predicted),
    )


def _predictions(sample: Sequence[StoredTrial]) -> Predictions:
    rows = [
        (
            trial.trial.number,
            -1 if trial.round is None else trial.round,
            trial.predicted,
            trial.trial.outcome.median_s,
        )
        for trial in sample
        if trial.predicted is not None and isinstance(trial.trial.outcome, Timed)
    ]
    return Predictions(
        numbers=np.array([row[0] for row in rows], np.int64),
        rounds=np.array([row[1] for row in rows], np.int64),
        scores=np.array([row[2] for row in rows], np.float64),
        medians_s=np.array([row[3] for row in rows], np.float64),
    )


def correlations(predictions: Predictions) -> tuple[tuple[int, float], ...]:
    """Spearman's rank correlation of score and speed in each round.

    Where rounds were not recorded, a batch is 64 consecutive trials.
    """
    rounds = np.where(predictions.rounds >= 0, predictions.rounds, predictions.numbers // BATCH)
    values = []
    for batch in np.unique(rounds):
        rows = rounds == batch
        value = spearman(predictions.scores[rows], -predictions.medians_s[rows])
        if value is not None:
            values.append((int(batch), value))
    return tuple(values)
