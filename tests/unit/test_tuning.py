"""The tuning loop: budgets, numbering, order of storing and telling, retries,
resumption, cancellation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from tests.support.synthetic_spaces import (
    DirectMeasurer,
    DisturbedMeasurer,
    Response,
    UnfeltMeasurer,
    large_space,
    measured,
    small_space,
)
from tuner.cost_model.encoding import KnobEncoding
from tuner.cost_model.ranker import Ranker
from tuner.errors import UsageError
from tuner.measure.measurer import Measurer
from tuner.measure.outcome import Candidate, Failed, FailureKind, Timed, Trial
from tuner.search.domain import Domain
from tuner.search.searcher import Plan, Searcher
from tuner.search.setup import SearchSetup
from tuner.search.strategies import build_searcher
from tuner.spaces.core.space import Config, Points, Space
from tuner.tuning import (
    BestImproved,
    Budget,
    RoundPlanned,
    Stopped,
    StopReason,
    TrialRecorded,
    TuningResult,
    tune,
)

SPACE = large_space()
RESPONSE = Response(space=SPACE)


@dataclass
class Clock:
    """Advances by a hundredth of a second whenever it is read."""

    now: float = 0.0

    def __call__(self) -> float:
        self.now += 0.01
        return self.now


def searcher(space: Space = SPACE, strategy: str = "random", seed: int = 0) -> Searcher:
    setup = SearchSetup(
        domain=Domain(space), featurizer=KnobEncoding(space), model=Ranker(), seed=seed
    )
    return build_searcher(strategy, setup)


def run(
    budget: Budget,
    *,
    strategy: str = "random",
    recorded: Sequence[Trial] = (),
    measurer: Measurer | None = None,
) -> tuple[list[Trial], TuningResult]:
    events = list(
        tune(
            space=SPACE,
            searcher=searcher(strategy=strategy),
            measurer=measurer or DirectMeasurer(SPACE, RESPONSE),
            budget=budget,
            clock=Clock(),
            recorded=recorded,
        )
    )
    last = events[-1]
    assert isinstance(last, Stopped)
    return [event.trial for event in events if isinstance(event, TrialRecorded)], last.result


def test_the_default_schedule_is_trial_0_and_counts() -> None:
    trials, result = run(Budget(trials=20))
    assert [trial.number for trial in trials] == list(range(20))
    assert trials[0].config == {} and all(trial.config for trial in trials[1:])
    assert (result.reason, result.trials) == (StopReason.TRIALS, 20)


def test_a_budget_of_one_measures_the_default_alone() -> None:
    trials, result = run(Budget(trials=1))
    assert [trial.config for trial in trials] == [{}]
    assert [trial.number for trial in result.best] == [0]


@pytest.mark.parametrize(("trials", "seconds"), [(0, None), (10, 0.0)])
def test_budgets_without_room_are_refused(trials: int, seconds: float | None) -> None:
    with pytest.raises(UsageError, match="too small"):
        Budget(trials=trials, seconds=seconds)


def test_the_best_are_sorted_and_timed() -> None:
    trials, result = run(Budget(trials=60))
    times = [trial.outcome.median_s for trial in result.best if isinstance(trial.outcome, Timed)]
    assert times == sorted(times) and len(times) == len(result.best)
    assert times[0] == min(
        trial.outcome.median_s for trial in trials if isinstance(trial.outcome, Timed)
    )


def test_the_best_are_those_at_the_usual_pace() -> None:
    """A third of the trials took half as long again on a core that was slowed: none of
    the best is lost, no number is touched."""
    _, direct = run(Budget(trials=60))
    recorded, slowed = run(Budget(trials=60), measurer=DisturbedMeasurer(SPACE, RESPONSE))
    first, second = ([trial.number for trial in result.best] for result in (direct, slowed))
    assert set(first[:8]) <= set(second) and any(number % 3 == 1 for number in first[:8])
    assert any(
        isinstance(t.outcome, Timed) and t.outcome.undisturbed_s < 0.75 * t.outcome.median_s
        for t in recorded
    )


def test_what_was_timed_in_slow_moments_does_not_take_all_places() -> None:
    """Their kernels felt nothing of what slowed the core: what is taken from their
    times for that is too much."""
    _, direct = run(Budget(trials=60))
    _, doubtful = run(Budget(trials=60), measurer=UnfeltMeasurer(SPACE, RESPONSE))
    first, second = ([trial.number for trial in result.best] for result in (direct, doubtful))
    assert set(first[:2]) <= set(second[:4]) and second[0] not in first[:4]


def test_no_more_is_in_flight_than_the_measurer_takes() -> None:
    measurer = DirectMeasurer(SPACE, RESPONSE, capacity=5)
    list(
        tune(
            space=SPACE,
            searcher=searcher(),
            measurer=measurer,
            budget=Budget(trials=33),
            clock=Clock(),
        )
    )
    assert measurer.largest_in_flight == 5
    assert len(measurer.submitted) == 33


@dataclass
class Watched:
    """A searcher that remembers what it was told."""

    inner: Searcher
    told_numbers: list[int] = field(default_factory=list)

    def ask(self, count: int) -> Points:
        return self.inner.ask(count)

    def tell(self, trials: Sequence[Trial]) -> None:
        self.told_numbers += [trial.number for trial in trials]
        self.inner.tell(trials)

    def forecast(self, config: Config) -> float | None:
        return self.inner.forecast(config)

    @property
    def plans(self) -> tuple[Plan, ...]:
        return self.inner.plans


def test_a_trial_is_stored_before_the_searcher_is_told() -> None:
    watched = Watched(searcher())
    stored: list[int] = []
    for event in tune(
        space=SPACE,
        searcher=watched,
        measurer=DirectMeasurer(SPACE, RESPONSE),
        budget=Budget(trials=12),
        clock=Clock(),
    ):
        if isinstance(event, TrialRecorded):
            assert event.trial.number not in watched.told_numbers
            stored.append(event.trial.number)
        assert set(watched.told_numbers) <= set(stored)
    assert watched.told_numbers == stored == list(range(12))


@pytest.mark.parametrize("strategy", ["annealing", "random"])
def test_a_resumed_run_repeats_nothing_and_ends_with_the_full_budget(strategy: str) -> None:
    whole, _ = run(Budget(trials=70), strategy=strategy)
    for lost_after in (1, 16, 17, 41, 69):
        rest, result = run(Budget(trials=70), strategy=strategy, recorded=whole[:lost_after])
        assert sorted(trial.number for trial in whole[:lost_after] + rest) == list(range(70))
        seen = [tuple(trial.config.items()) for trial in whole[:lost_after] + rest]
        assert len(set(seen)) == 70
        assert result.trials == 70


def test_numbers_left_out_by_an_earlier_run_are_used_first() -> None:
    whole, _ = run(Budget(trials=10))
    rest, _ = run(
        Budget(trials=12), recorded=[trial for trial in whole if trial.number not in (4, 7)]
    )
    assert sorted(trial.number for trial in rest) == [4, 7, 10, 11]


class Unlucky(DirectMeasurer):
    """Loses the candidates of the given numbers so many times."""

    def __init__(self, losses: dict[int, int]) -> None:
        super().__init__(SPACE, RESPONSE)
        self.losses = losses

    def answer(self, candidate: Candidate) -> Trial:
        if self.losses.get(candidate.number, 0) > 0:
            self.losses[candidate.number] -= 1
            outcome = Failed(kind=FailureKind.INFRASTRUCTURE, message="worker lost")
            return Trial(number=candidate.number, config=candidate.config, outcome=outcome)
        return measured(SPACE, RESPONSE, candidate)


def test_what_the_measurer_gave_up_is_recorded_once_and_not_proposed_again() -> None:
    measurer = Unlucky({5: 1})
    events = list(
        tune(
            space=SPACE,
            searcher=searcher(),
            measurer=measurer,
            budget=Budget(trials=30),
            clock=Clock(),
        )
    )
    trials = {
        event.trial.number: event.trial for event in events if isinstance(event, TrialRecorded)
    }
    assert sorted(trials) == list(range(30))
    assert isinstance(trials[0].outcome, Timed)
    assert (
        isinstance(trials[5].outcome, Failed)
        and trials[5].outcome.kind is FailureKind.INFRASTRUCTURE
    )
    assert sorted(candidate.number for candidate in measurer.submitted) == list(range(30))
    configs = [tuple(trial.config.items()) for trial in trials.values()]
    assert len(set(configs)) == 30


def test_the_time_budget_ends_the_run() -> None:
    trials, result = run(Budget(trials=100_000, seconds=5.0))
    assert result.reason is StopReason.SECONDS
    assert 5.0 <= result.elapsed.total_s < 5.5
    assert 10 < len(trials) < 1000


def test_reaching_the_roofline_ends_the_run() -> None:
    reachable = 1.15e-3
    trials, result = run(Budget(trials=2000, target_s=reachable))
    assert result.reason is StopReason.TARGET
    last = trials[-1].outcome
    assert isinstance(last, Timed) and last.median_s * 0.98 <= reachable
    assert all(
        not isinstance(t.outcome, Timed) or t.outcome.median_s * 0.98 > reachable
        for t in trials[:-1]
    )


def test_the_roofline_ends_no_run_before_32_trials() -> None:
    """What the machine reaches was measured in a few seconds, perhaps in bad ones."""
    reached_early = 1.5e-3
    trials, result = run(Budget(trials=2000, target_s=reached_early))
    assert (result.reason, len(trials)) == (StopReason.TARGET, 32)
    assert any(
        isinstance(t.outcome, Timed) and t.outcome.median_s * 0.98 <= reached_early
        for t in trials[:-1]
    )


def test_the_roofline_ends_no_run_on_cores_that_changed_their_speed() -> None:
    """It was measured at one of their speeds, and nobody knows at which."""
    reached_early = 1.5e-3
    trials, result = run(
        Budget(trials=60, target_s=reached_early), measurer=DisturbedMeasurer(SPACE, RESPONSE)
    )
    assert (result.reason, len(trials)) == (StopReason.TRIALS, 60)
    assert any(
        isinstance(t.outcome, Timed) and t.outcome.undisturbed_s * 0.98 <= reached_early
        for t in trials
    )


def test_a_kernel_far_faster_than_the_target_disproves_it() -> None:
    """The machine's limits were measured in a bad hour: what they say about what is
    left is nothing."""
    _, result = run(Budget(trials=40, target_s=1.0))
    assert (result.reason, result.trials) == (StopReason.TRIALS, 40)


def test_an_exhausted_space_ends_the_run() -> None:
    space = small_space()
    fast = Response(space=space)

    class Constant(DirectMeasurer):
        def answer(self, candidate: Candidate) -> Trial:
            return measured(space, fast, Candidate(number=candidate.number)).__class__(
                number=candidate.number,
                config=candidate.config,
                outcome=Failed(kind=FailureKind.BUILD_ERROR, message="no"),
            )

    for strategy in ("annealing", "evolutionary", "random", "grid"):
        events = list(
            tune(
                space=space,
                searcher=searcher(space, strategy),
                measurer=Constant(space, fast, capacity=3),
                budget=Budget(trials=500),
                clock=Clock(),
            )
        )
        last = events[-1]
        assert isinstance(last, Stopped)
        assert (last.result.reason, last.result.trials, last.result.best) == (
            StopReason.EXHAUSTED,
            space.size + 1,
            (),
        )


def test_cancellation_ends_the_run_between_trials() -> None:
    stored: list[int] = []
    events = tune(
        space=SPACE,
        searcher=searcher(),
        measurer=DirectMeasurer(SPACE, RESPONSE),
        budget=Budget(trials=1000),
        clock=Clock(),
        cancelled=lambda: len(stored) >= 7,
    )
    for event in events:
        if isinstance(event, TrialRecorded):
            stored.append(event.trial.number)
    assert isinstance(event, Stopped) and event.result.reason is StopReason.CANCELLED
    assert len(stored) == 7


class Silent(DirectMeasurer):
    """Never answers, but returns from waiting."""

    def results(self, *, timeout_s: float) -> Iterator[Trial]:
        yield from ()


def test_a_measurer_that_never_answers_does_not_outlive_the_time_budget() -> None:
    events = list(
        tune(
            space=SPACE,
            searcher=searcher(),
            measurer=Silent(SPACE, RESPONSE),
            budget=Budget(trials=10, seconds=1.0),
            clock=Clock(),
        )
    )
    assert isinstance(events[-1], Stopped) and events[-1].result.reason is StopReason.SECONDS


class Late(DirectMeasurer):
    """Answers a second of the clock after the time is over."""

    polls = 0

    def results(self, *, timeout_s: float) -> Iterator[Trial]:
        self.polls += 1
        if self.polls > 200:
            yield from super().results(timeout_s=timeout_s)


@pytest.mark.parametrize(("waits", "timed"), [(False, False), (True, True)])
def test_the_first_candidates_may_be_waited_for(waits: bool, timed: bool) -> None:
    budget = Budget(trials=1000, seconds=1.0, waits_for_one=waits)
    measurer = Late(SPACE, RESPONSE)
    trials, result = run(budget, measurer=measurer)
    assert result.reason is StopReason.SECONDS
    assert any(isinstance(trial.outcome, Timed) for trial in trials) == timed
    assert len(measurer.submitted) == measurer.capacity, "nothing new after the time was over"


def test_rounds_carry_the_correlation_taken_before_training() -> None:
    events = list(
        tune(
            space=SPACE,
            searcher=searcher(strategy="annealing"),
            measurer=DirectMeasurer(SPACE, RESPONSE),
            budget=Budget(trials=120),
            clock=Clock(),
        )
    )
    plans = [event.plan for event in events if isinstance(event, RoundPlanned)]
    assert [plan.trials for plan in plans] == [8, 16, 24, 36, 54, 81, 113]
    assert plans[0].correlation is None
    assert any(plan.correlation is not None and plan.correlation > 0.3 for plan in plans[1:])
    improved = [event.median_s for event in events if isinstance(event, BestImproved)]
    assert improved == sorted(improved, reverse=True)


def test_what_the_model_expected_is_told_before_it_learns_the_outcome() -> None:
    measurer = DirectMeasurer(SPACE, RESPONSE)
    events = list(
        tune(
            space=SPACE,
            searcher=searcher(strategy="annealing"),
            measurer=measurer,
            budget=Budget(trials=80),
            clock=Clock(),
        )
    )
    recorded = [event for event in events if isinstance(event, TrialRecorded)]
    assert all(event.predicted is None for event in recorded if event.round == 0)
    later = [event for event in recorded if event.round > 0 and event.trial.config]
    assert len(later) > 40 and all(event.predicted is not None for event in later)
