"""What every search strategy promises: new points only, until there are none; the same
points again when rebuilt."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.synthetic_spaces import Response, large_space, measured, small_space
from tuner.cost_model.encoding import KnobEncoding
from tuner.cost_model.ranker import Ranker
from tuner.errors import UsageError
from tuner.measure.outcome import Candidate, Failed, FailureKind, Outcome, Trial
from tuner.search.domain import Domain
from tuner.search.searcher import Searcher
from tuner.search.setup import SearchSetup
from tuner.search.strategies import STRATEGIES, build_searcher
from tuner.spaces.core.space import Points, Space

LARGE = large_space()
RESPONSE = Response(space=LARGE)
Answer = Callable[[Space, Points, int], list[Trial]]


def new(strategy: str, domain: Domain, seed: int = 0) -> Searcher:
    return build_searcher(
        strategy,
        SearchSetup(
            domain=domain, featurizer=KnobEncoding(domain.space), model=Ranker(), seed=seed
        ),
    )


def answered(space: Space, points: Points, first: int) -> list[Trial]:
    return [
        measured(space, RESPONSE, Candidate(number=first + offset, config=space.config(point)))
        for offset, point in enumerate(points)
    ]


def failed(
    space: Space, points: Points, first: int, kind: FailureKind = FailureKind.BUILD_ERROR
) -> list[Trial]:
    outcome: Outcome = Failed(kind=kind, message="refused")
    return [
        Trial(number=first + offset, config=space.config(point), outcome=outcome)
        for offset, point in enumerate(points)
    ]


def lost(space: Space, points: Points, first: int) -> list[Trial]:
    return failed(space, points, first, FailureKind.INFRASTRUCTURE)


def played(
    searcher: Searcher, space: Space, batches: list[int], answer: Answer = answered
) -> list[Trial]:
    trials: list[Trial] = []
    for count in batches:
        batch = answer(space, searcher.ask(count), len(trials) + 1)
        trials += batch
        searcher.tell(batch)
    return trials


@pytest.fixture(params=list(STRATEGIES))
def strategy(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_asks_give_canonical_points_of_the_space_as_int32(strategy: str) -> None:
    points = new(strategy, Domain(LARGE)).ask(40)
    assert points.shape == (40, len(LARGE.knobs)) and points.dtype == np.int32
    assert ((points >= 0) & (points < LARGE.cardinalities)).all()
    assert np.array_equal(points, LARGE.canonical(points))


def test_no_point_is_proposed_twice_whether_told_or_in_flight(strategy: str) -> None:
    domain = Domain(LARGE)
    searcher = new(strategy, domain)
    proposed: list[int] = []
    waiting: list[Trial] = []
    for _ in range(40):
        points = searcher.ask(4)
        proposed += domain.keys(points).tolist()
        waiting += answered(LARGE, points, len(proposed))
        finished, waiting = waiting[:-6], waiting[-6:]  # results come late, six stay in flight
        searcher.tell(finished)
    assert len(proposed) == 160 == len(set(proposed))


@pytest.mark.parametrize("answer", [failed, lost], ids=["failed", "lost"])
def test_a_space_is_exhausted_exactly_even_when_nothing_ever_runs(
    strategy: str, answer: Answer
) -> None:
    space = small_space()
    searcher = new(strategy, Domain(space))
    trials = played(searcher, space, [7] * 11, answer)
    assert (
        len({space.rank(space.point(trial.config)) for trial in trials})
        == len(trials)
        == space.size
        == 76
    )
    assert searcher.ask(5).shape == (0, len(space.knobs))


def test_a_space_of_one_point_is_searched(strategy: str) -> None:
    single = Space((small_space().combinations[0].__class__(name="only", knobs=()),))
    searcher = new(strategy, Domain(single))
    assert searcher.ask(3).tolist() == [[0]]
    assert len(searcher.ask(3)) == 0


def test_only_the_domains_points_are_proposed(strategy: str) -> None:
    rows = np.unique(LARGE.sample(np.random.default_rng(5), 120), axis=0)
    domain = Domain(LARGE, rows)
    trials = played(new(strategy, domain), LARGE, [8] * 20)
    assert sorted(map(LARGE.rank, map(LARGE.point, (t.config for t in trials)))) == sorted(
        map(LARGE.rank, rows)
    )


def test_the_same_seed_gives_the_same_trials_and_another_seed_others(strategy: str) -> None:
    first, again, other = (
        played(new(strategy, Domain(LARGE), seed), LARGE, [4] * 12) for seed in (1, 1, 2)
    )
    assert [trial.config for trial in first] == [trial.config for trial in again]
    assert [trial.config for trial in first] != [trial.config for trial in other]


@pytest.mark.parametrize("count", [3, 16, 39, 72, 90])
def test_telling_a_new_searcher_the_recorded_trials_rebuilds_it(strategy: str, count: int) -> None:
    domain = Domain(LARGE)
    lived = new(strategy, domain)
    trials = played(lived, LARGE, [3] * 30)[:count]
    # The lost searcher had the same trials told, batch by batch, and nothing in flight.
    before = new(strategy, domain)
    for start in range(0, count, 3):
        batch = trials[start : start + 3]
        before.ask(len(batch))
        before.tell(batch)
    rebuilt = new(strategy, domain)
    rebuilt.tell(trials)
    assert rebuilt.plans == before.plans
    assert np.array_equal(rebuilt.ask(10), before.ask(10))


def test_points_in_flight_when_a_searcher_was_lost_are_proposed_again(strategy: str) -> None:
    domain = Domain(LARGE)
    lost_one = new(strategy, domain)
    trials = played(lost_one, LARGE, [5] * 4)
    in_flight = lost_one.ask(4)
    rebuilt = new(strategy, domain)
    rebuilt.tell(trials)
    assert np.array_equal(rebuilt.ask(4), in_flight)


def test_the_default_schedule_and_repeated_tells_change_nothing(strategy: str) -> None:
    plain, disturbed = new(strategy, Domain(LARGE)), new(strategy, Domain(LARGE))
    trials = played(plain, LARGE, [4] * 10)
    disturbed.tell(
        [measured(LARGE, RESPONSE, Candidate(number=0)), *trials[:20], *trials[:20], *trials[20:]]
    )
    assert np.array_equal(plain.ask(6), disturbed.ask(6))


def test_an_ask_for_nothing_gives_nothing(strategy: str) -> None:
    assert new(strategy, Domain(LARGE)).ask(0).shape == (0, len(LARGE.knobs))


def test_an_unknown_strategy_is_named_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'genetic'.*annealing, evolutionary, random, grid"):
        new("genetic", Domain(LARGE))
