"""A finished workload's trials become rows to learn from and configs to start from."""

from __future__ import annotations

import numpy as np

from tests.support.synthetic_spaces import Response, disturbed, large_space, measured
from tuner.cost_model.encoding import KnobEncoding
from tuner.measure.outcome import BELIEVED, Candidate, Failed, FailureKind, Timed, Trial
from tuner.search.past import best_configs, past_of

SPACE = large_space()
RESPONSE = Response(space=SPACE, registers=32)
POINTS = np.unique(SPACE.sample(np.random.default_rng(0), 60), axis=0)
TRIALS = [
    measured(SPACE, RESPONSE, Candidate(number=0)),
    *(
        measured(SPACE, RESPONSE, Candidate(number=number, config=SPACE.config(point)))
        for number, point in enumerate(POINTS, 1)
    ),
]


def test_rows_are_the_workloads_own_trials_with_labels_relative_to_its_best() -> None:
    lost = Trial(
        number=99,
        config=SPACE.config(SPACE.unrank(7)),
        outcome=Failed(kind=FailureKind.INFRASTRUCTURE, message="worker lost"),
    )
    past = past_of("key", "matmul", SPACE, [*TRIALS, lost, TRIALS[3]], KnobEncoding(SPACE))
    assert np.array_equal(past.features, KnobEncoding(SPACE)(POINTS))
    assert past.labels.max() == 1.0
    assert np.array_equal(
        past.labels == 0, np.array([isinstance(trial.outcome, Failed) for trial in TRIALS[1:]])
    )


def test_what_a_slowed_core_took_teaches_nearly_the_same() -> None:
    """Of the 1.5 times as long, all but what is not believed is taken off."""
    slowed = [disturbed(trial) if trial.number % 2 else trial for trial in TRIALS]
    plain, other = (
        past_of("key", "matmul", SPACE, trials, KnobEncoding(SPACE)) for trials in (TRIALS, slowed)
    )
    timed = plain.labels > 0
    assert np.array_equal(timed, other.labels > 0)
    assert (
        np.abs(np.log(plain.labels[timed] / other.labels[timed])).max()
        <= (1 - BELIEVED) * np.log(1.5) + 1e-5
    )
    assert best_configs(TRIALS, 1)[0] in best_configs(slowed, 5)


def test_best_configs_are_timed_sorted_and_not_the_default() -> None:
    best = best_configs(TRIALS, 5)
    seconds = [trial.outcome.median_s for trial in TRIALS[1:] if isinstance(trial.outcome, Timed)]
    times = [
        outcome.median_s
        for outcome in (RESPONSE.outcome(SPACE.point(config)) for config in best)
        if isinstance(outcome, Timed)
    ]
    assert times == sorted(seconds)[:5]
