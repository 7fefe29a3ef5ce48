"""Recorded trials of a finished workload as data for transfer, and its best configs."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.cost_model.history import Past
from tuner.cost_model.model import Featurizer
from tuner.measure.outcome import Timed, Trial
from tuner.search.domain import Domain
from tuner.search.ledger import Ledger
from tuner.spaces.core.space import Config, Space


def past_of(
    workload: str, op: str | None, space: Space, trials: Sequence[Trial], featurizer: Featurizer
) -> Past:
    """What transfer learns from the trials of a workload.

    `workload` is its key, `op` its operator. `space` and `featurizer` are those of that
    workload, not of the one to be tuned. The default schedule, infrastructure failures
    and repeats are left out. Raises UsageError for a config that `space` does not have.
    """
    ledger = Ledger(Domain(space))
    for trial in trials:
        ledger.tell(trial)
    return Past(workload=workload, op=op, features=featurizer(ledger.points), labels=ledger.labels)


def best_configs(trials: Sequence[Trial], count: int) -> list[Config]:
    """The configs of the fastest trials, the fastest first, without the default schedule."""
    timed = [
        (trial.outcome.undisturbed_s, trial.config)
        for trial in trials
        if isinstance(trial.outcome, Timed) and trial.config
    ]
    return [config for _, config in sorted(timed, key=lambda pair: pair[0])[:count]]
