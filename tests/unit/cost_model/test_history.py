"""Transfer: a history helps at once, fades with the workload's own trials, and weighs workloads alike."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.cost_model.synthetic import LearningProblem, problem
from tuner.cost_model.history import Past, Prior, TransferRanker, train_on
from tuner.cost_model.metrics import pairwise_accuracy
from tuner.cost_model.ranker import Ranker
from tuner.errors import UsageError


def past(seed: int, rows: int = 400, shift: float = 0.1) -> Past:
    data = problem(seed=seed, rows=rows, shift=shift)
    return Past(workload=f"w{seed}", features=data.features, labels=data.labels)


UNSEEN = problem(seed=50, rows=1500)
HISTORY = [past(1, shift=0.1), past(2, shift=-0.15), past(3, shift=0.2)]


def accuracy(model: Ranker | TransferRanker, data: LearningProblem | None = None) -> float:
    if data is not None:
        model.fit(data.features, data.labels, data.groups)
    return pairwise_accuracy(model.predict(UNSEEN.features), UNSEEN.labels)


def prior_accuracy(model: Prior) -> float:
    return pairwise_accuracy(model.predict(UNSEEN.features), UNSEEN.labels)


def test_history_ranks_a_workload_never_measured() -> None:
    assert accuracy(TransferRanker(train_on(HISTORY))) > 0.8


@pytest.mark.parametrize("rows", [8, 24, 64])
def test_with_few_trials_history_and_local_model_beat_the_local_one(rows: int) -> None:
    own = problem(seed=60, rows=rows)
    assert accuracy(TransferRanker(train_on(HISTORY)), own) > accuracy(Ranker(), own) + 0.02


def test_with_many_trials_nothing_is_lost() -> None:
    own = problem(seed=61, rows=400)
    assert accuracy(TransferRanker(train_on(HISTORY)), own) > accuracy(Ranker(), own) - 0.02


def test_a_misleading_history_is_overcome() -> None:
    wrong = [
        Past(workload="w", features=one.features, labels=(0.01 / one.labels).clip(0, 1).astype(np.float32)) for one in HISTORY
    ]
    model = TransferRanker(train_on(wrong))
    assert accuracy(model) < 0.5
    assert accuracy(model, problem(seed=62, rows=300)) > 0.75


def test_workloads_weigh_alike_however_many_trials_they_have() -> None:
    flipped = past(5, rows=60)
    flipped = Past(workload="few", features=flipped.features, labels=(0.01 / flipped.labels).clip(0, 1).astype(np.float32))
    alone = prior_accuracy(train_on([past(4, rows=1200)]))
    together = prior_accuracy(train_on([past(4, rows=1200), flipped]))
    assert together < alone - 0.03, "sixty trials of another workload are heard beside twelve hundred"


def test_no_history_gives_an_untrained_model_and_no_transfer() -> None:
    assert not train_on([]).trained
    with pytest.raises(UsageError, match="plain ranker"):
        TransferRanker(train_on([]))


def test_features_of_several_versions_are_refused() -> None:
    narrow = Past(workload="n", features=HISTORY[0].features[:, :5], labels=HISTORY[0].labels)
    with pytest.raises(UsageError, match=r"\[5, 12\] columns"):
        train_on([HISTORY[0], narrow])
