"""What trials of a GPU teach its next search: costs of terms, on kernels that an H200
measured, and trees; saved and loaded alike."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.spaces import shared_space
from tests.support.targets import H100, H200
from tuner.cost_model.cuda.estimate import CudaDescription, CudaEstimate, CudaFeatures
from tuner.cost_model.cuda.history import PRICED, WIDTH, CudaPrior
from tuner.cost_model.cuda.resources import COLUMNS
from tuner.cost_model.cuda.terms import COSTS, DEVICE_NAMES, TERM_NAMES
from tuner.cost_model.history import Past, taught
from tuner.errors import UsageError

SPEC = "matmul:M=256,N=256,K=256"


def described(count: int, seed: int, op: str | None = "matmul") -> Past:
    """Random terms, of which waiting for copies costs two doublings more than estimated."""
    rng = np.random.default_rng(seed)
    features = rng.random((count, WIDTH)).astype(np.float32)
    costs = COSTS + 2.0 * (np.array(TERM_NAMES) == "no_overlap")
    seconds = np.exp2(features[:, COLUMNS:PRICED] @ costs)
    return Past(
        workload=f"w{seed}",
        op=op,
        features=features,
        labels=(seconds.min() / seconds).astype(np.float32),
    )


def order(prior: CudaPrior, past: Past) -> float:
    """Rank correlation of what the prior says with what was measured."""
    ranks = [
        np.argsort(np.argsort(values)) for values in (prior.predict(past.features), past.labels)
    ]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def test_costs_that_were_measured_elsewhere_order_a_new_workload() -> None:
    unseen = described(300, seed=9)
    prior = taught(CudaPrior(), [described(100, seed=seed, op=None) for seed in (1, 2)])
    assert order(prior, unseen) > 0.99 > order(CudaPrior(), unseen) + 0.03


def test_failures_alone_teach_nothing() -> None:
    past = described(50, seed=1)
    failed = Past(workload="w", op=None, features=past.features, labels=0 * past.labels)
    untaught = CudaPrior().predict(past.features)
    np.testing.assert_allclose(taught(CudaPrior(), [failed]).predict(past.features), untaught)


@pytest.mark.parametrize("op", ["matmul", None])
def test_what_was_learned_is_saved_and_loaded(op: str | None) -> None:
    prior = taught(CudaPrior(), [described(60, seed=seed) for seed in (1, 2, 3)], op)
    again, rows = CudaPrior(), described(50, seed=4).features
    again.load(prior.save())
    np.testing.assert_array_equal(again.predict(rows), prior.predict(rows))


@pytest.mark.parametrize("data", [b"", b"{}", b'{"costs": [1.0], "trees": ""}', b"[]"])
def test_what_is_no_prior_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError):
        CudaPrior().load(data)


def test_an_untaught_prior_ranks_as_the_estimate_does() -> None:
    space = shared_space(SPEC, H200)
    points = space.space.sample(np.random.default_rng(0), 64)
    features = CudaFeatures(space)(points)
    assert features.shape[1] > WIDTH and np.isfinite(features).all()
    estimate = CudaEstimate(space)(points)
    np.testing.assert_allclose(features[:, PRICED], estimate, atol=1e-4)
    by_score = np.argsort(-CudaPrior().predict(features), kind="stable")
    assert (np.diff(estimate[by_score]) > -1e-4).all()


def test_terms_are_relative_to_the_device() -> None:
    """An H200 has the memory of an H100 five quarters as fast, and nothing else."""
    points = shared_space(SPEC, H100).space.sample(np.random.default_rng(0), 64)
    slow, fast = (CudaDescription(shared_space(SPEC, gpu))(points) for gpu in (H100, H200))
    differ = {
        ("registers", "warps", *TERM_NAMES, "estimate", *DEVICE_NAMES)[column]
        for column in np.flatnonzero((slow != fast).any(axis=0))
    }
    assert differ == {"traffic", "multiply_adds_per_byte"}
    traffic = COLUMNS + TERM_NAMES.index("traffic")
    assert (slow[:, traffic] > fast[:, traffic]).all()
