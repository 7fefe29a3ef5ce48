"""Transfer: an opinion formed elsewhere helps at once, and fades with the workload's own trials."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.learning_problem import LearningProblem, problem
from tuner.cost_model.cpu.cycles import ROUND_COSTS, TERM_NAMES
from tuner.cost_model.history import Opinion, Past, Prior, TransferRanker, train_on
from tuner.cost_model.metrics import pairwise_accuracy
from tuner.cost_model.ranker import Ranker
from tuner.errors import UsageError

UNSEEN = problem(seed=50, rows=1500)


def opinion(*, misleading: bool = False) -> Opinion:
    """Of another workload, whose best lies elsewhere."""
    other = problem(seed=1, rows=400, shift=0.1)
    labels = (0.01 / other.labels).clip(0, 1).astype(np.float32) if misleading else other.labels
    ranker = Ranker()
    ranker.fit(other.features, labels, other.groups)
    return ranker


def accuracy(model: Ranker | TransferRanker, data: LearningProblem | None = None) -> float:
    if data is not None:
        model.fit(data.features, data.labels, data.groups)
    return pairwise_accuracy(model.predict(UNSEEN.features), UNSEEN.labels)


def test_an_opinion_ranks_a_workload_never_measured() -> None:
    assert accuracy(TransferRanker(opinion())) > 0.8


@pytest.mark.parametrize("rows", [8, 24, 64])
def test_with_few_trials_opinion_and_local_model_beat_the_local_one(rows: int) -> None:
    own = problem(seed=60, rows=rows)
    assert accuracy(TransferRanker(opinion()), own) > accuracy(Ranker(), own) + 0.02


def test_with_many_trials_nothing_is_lost() -> None:
    own = problem(seed=61, rows=400)
    assert accuracy(TransferRanker(opinion()), own) > accuracy(Ranker(), own) - 0.02


def test_a_misleading_opinion_is_overcome() -> None:
    model = TransferRanker(opinion(misleading=True))
    assert accuracy(model) < 0.5
    assert accuracy(model, problem(seed=62, rows=300)) > 0.75


def past(columns: int) -> Past:
    rng = np.random.default_rng(0)
    return Past(
        workload="w",
        op="matmul",
        features=rng.random((30, columns)).astype(np.float32),
        labels=rng.random(30).astype(np.float32),
    )


def missed(seed: int, op: str | None = "matmul") -> Past:
    """A workload whose time is the estimate's but for what one term hides: where its
    share in it is large, twice that. A feature that is no term says nothing."""
    rng = np.random.default_rng(seed)
    features = rng.random((200, 1 + len(ROUND_COSTS))).astype(np.float32)
    cycles = (np.exp2(features[:, 1:]) - 1.0) * ROUND_COSTS
    hiding = cycles[:, TERM_NAMES.index("accumulator_setup")] / cycles.sum(axis=1)
    seconds = cycles.sum(axis=1) * np.where(hiding > np.median(hiding), 2.0, 1.0)
    return Past(
        workload=f"w{seed}",
        op=op,
        features=features,
        labels=(seconds.min() / seconds).astype(np.float32),
    )


def test_what_the_estimate_misses_of_an_operator_is_learned_from_its_workloads() -> None:
    history, own = [missed(1), missed(2), missed(4), missed(5, op="transpose")], missed(3)
    accuracies = {
        op: pairwise_accuracy(train_on(history, op).predict(own.features), own.labels)
        for op in ("matmul", "dense", None)
    }
    assert accuracies["matmul"] > accuracies["dense"] + 0.1
    assert accuracies["dense"] == accuracies[None]


def test_one_workload_of_the_operator_corrects_nothing() -> None:
    """What it has to itself would be taken for the operator's: on recorded products the
    fastest were not found at all then."""
    history, own = [missed(1), missed(2, op="transpose")], missed(3)
    assert np.array_equal(
        train_on(history, "matmul").predict(own.features), train_on(history).predict(own.features)
    )


def test_workloads_of_the_notation_correct_nothing() -> None:
    history = [missed(seed, op=None) for seed in (1, 2, 4)]
    assert np.array_equal(
        train_on(history, None).predict(missed(3).features),
        train_on(history, "x").predict(missed(3).features),
    )


@pytest.mark.parametrize("op", ["matmul", None])
def test_a_prior_is_read_back_as_it_was(op: str | None) -> None:
    prior, again = train_on([missed(seed) for seed in (1, 2, 4)], op), Prior()
    again.load(prior.save())
    assert np.array_equal(again.predict(missed(3).features), prior.predict(missed(3).features))


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"{",
        b'{"costs": [1.0]}',
        b'{"costs": [1.0], "trees": ""}',
        b'{"costs": [], "trees": "AAAA"}',
    ],
)
def test_what_is_no_prior_is_refused(blob: bytes) -> None:
    with pytest.raises(UsageError):
        Prior().load(blob)


def test_no_history_leaves_the_round_costs() -> None:
    features = past(len(ROUND_COSTS)).features
    assert np.allclose(
        train_on([]).log_cycles(features),
        np.log((np.exp2(features) - 1.0) @ ROUND_COSTS),
        rtol=1e-5,
    )


def test_features_without_the_terms_are_refused() -> None:
    with pytest.raises(UsageError, match="5 features hold no"):
        train_on([]).predict(past(5).features)


def test_features_of_several_versions_are_refused() -> None:
    with pytest.raises(UsageError, match=r"\[60, 70\] columns"):
        train_on([past(60), past(70)])
