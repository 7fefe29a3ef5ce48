"""Times learned from kernels whose law is known: what was left out is estimated as well
as the law's noise allows, and intervals hold as often as they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tuner.cost_model.cpu.cycles import TERMS
from tuner.cost_model.latency import LEAST, Description, LatencyModel, Measured
from tuner.errors import UsageError

NOISE = 0.05  # of the logarithm
# Cycles a second, and what two operators take beside their estimate.
RATE, BESIDE = 3e9, {"matmul": 1.4, "softmax": 0.7}


def kernels(count: int, seed: int, noise: float = NOISE) -> list[Measured]:
    rng = np.random.default_rng(seed)
    return [kernel(rng, noise) for _ in range(count)]


def kernel(rng: np.random.Generator, noise: float) -> Measured:
    op = str(rng.choice(sorted(BESIDE)))
    rows, columns = (int(extent) for extent in rng.integers(8, 2048, 2))
    shares: NDArray[np.float32] = rng.dirichlet(np.full(len(TERMS), 0.1)).astype(np.float32)
    described = Description(
        op=op,
        words=(("dtype", "float32"),),
        extents={"M": rows, "N": columns},
        flops=2 * rows * columns,
        nbytes=4 * rows * columns,
        roofline_s=None,
        cycles=4.0 * rows * columns,
        shares=shares,
    )
    # The third term costs twice its round number.
    costs = BESIDE[op] * (1 + float(shares[2]))
    median_s = described.cycles / RATE * costs * float(np.exp(noise * rng.standard_normal()))
    return Measured(
        described=described, median_s=median_s, ci95_s=(0.99 * median_s, 1.01 * median_s)
    )


@pytest.fixture(scope="module")
def model() -> LatencyModel:
    return LatencyModel(kernels(80, seed=1))


def test_unseen_kernels_are_estimated_and_their_intervals_hold(model: LatencyModel) -> None:
    unseen = kernels(300, seed=2)
    latencies = model.predict([each.described for each in unseen])
    pairs = list(zip(latencies, unseen, strict=True))
    errors = [abs(latency.median_s / each.median_s - 1) for latency, each in pairs]
    covered = [latency.low_s <= each.median_s <= latency.high_s for latency, each in pairs]
    assert np.median(errors) < 2 * NOISE
    assert 0.82 < np.mean(covered) < 0.97
    # The intervals are no wider than such a noise asks for, by much.
    assert np.median([latency.high_s / latency.low_s for latency in latencies]) < np.exp(8 * NOISE)


def test_a_model_says_how_wrong_it_has_been(model: LatencyModel) -> None:
    accuracy, unseen = model.accuracy, kernels(300, seed=2)
    latencies = model.predict([each.described for each in unseen])
    errors = [
        abs(latency.median_s / each.median_s - 1)
        for latency, each in zip(latencies, unseen, strict=True)
    ]
    assert accuracy.kernels == 80 and 0.85 <= accuracy.coverage <= 0.95
    assert accuracy.median_error == pytest.approx(float(np.median(errors)), rel=0.5)
    assert accuracy.tau is not None and accuracy.tau > 0.9


def test_each_is_told_by_all_others_as_its_accuracy_says(model: LatencyModel) -> None:
    known = kernels(80, seed=1)
    pairs = list(zip(model.left_out(), known, strict=True))
    errors = [abs(each.median_s / kernel.median_s - 1) for each, kernel in pairs]
    covered = [each.low_s <= kernel.median_s <= each.high_s for each, kernel in pairs]
    assert np.median(errors) == pytest.approx(model.accuracy.median_error)
    assert np.mean(covered) == pytest.approx(model.accuracy.coverage)
    others = LatencyModel(known[1:]).predict([known[0].described])[0]
    assert model.left_out()[0].median_s == pytest.approx(others.median_s, rel=0.02)


def unsure(model: LatencyModel, described: list[Description], weights: list[float]) -> float:
    """The weighted sum of the standard deviations of all seconds, but for a factor."""
    return sum(
        weight * each.median_s * float(np.log(each.high_s / each.low_s))
        for weight, each in zip(weights, model.predict(described), strict=True)
    )


def test_the_most_telling_makes_all_surer_than_others_would(model: LatencyModel) -> None:
    """Kernels of an operator that nobody measured: whichever is measured first tells of all
    of them, that of most weight most."""
    known, weights = kernels(80, seed=1), [1.0] * 6
    new = [replace(each.described, op="new") for each in kernels(6, seed=5)]
    times = [each.cycles / RATE for each in new]

    def after(place: int) -> float:
        ci95_s = (0.99 * times[place], 1.01 * times[place])
        measured = Measured(described=new[place], median_s=times[place], ci95_s=ci95_s)
        return unsure(LatencyModel([*known, measured]), new, weights)

    order = model.most_telling(new, weights, 6)
    assert sorted(order) == list(range(6))
    lefts = [after(place) for place in order]
    assert lefts[0] <= np.median(lefts) and lefts[0] < 0.8 * unsure(model, new, weights)


def test_of_two_that_are_alike_one_is_told_by_the_other(model: LatencyModel) -> None:
    first, other = (
        replace(each.described, op=op, cycles=1e6)
        for each, op in zip(kernels(2, seed=5), ("new", "another"), strict=True)
    )
    twin = replace(first, extents={name: value + 1 for name, value in first.extents.items()})
    order = model.most_telling([first, twin, other], [1.0, 1.0, 1.0], 3)
    assert order[0] in (0, 1) and order[1] == 2, "the twin comes last"


def test_weights_decide_what_is_told(model: LatencyModel) -> None:
    described = [replace(each.described, cycles=1e6) for each in kernels(5, seed=6)]
    for place in range(5):
        weights = [1.0 if other == place else 0.0 for other in range(5)]
        assert model.most_telling(described, weights, 1) == [place]
    assert model.most_telling(described, [1.0] * 5, 0) == []


def test_what_is_noisier_is_said_to_be() -> None:
    quiet, noisy = (LatencyModel(kernels(40, seed=1, noise=noise)) for noise in (0.02, 0.3))
    assert quiet.accuracy.median_error < noisy.accuracy.median_error / 2
    described = [kernels(1, seed=3)[0].described]
    widths = [model.predict(described)[0] for model in (quiet, noisy)]
    assert widths[0].high_s / widths[0].low_s < widths[1].high_s / widths[1].low_s


def test_a_kernel_of_nearly_the_same_extents_is_the_neighbour() -> None:
    known = kernels(20, seed=1)
    described = known[7].described
    near = replace(described, extents={**described.extents, "M": described.extents["M"] + 1})
    far = replace(described, extents={"M": 1, "N": 1})
    other = replace(near, words=(("dtype", "float64"),))
    latencies = LatencyModel(known).predict([near, far, other])
    assert [latency.neighbour for latency in latencies] == [7, None, None]


def test_too_few_kernels_are_refused_and_no_request_is_no_work() -> None:
    with pytest.raises(UsageError, match=f"{LEAST} or more"):
        LatencyModel(kernels(LEAST - 1, seed=1))
    assert LatencyModel(kernels(LEAST, seed=1)).predict([]) == []
