"""Points that come from outside: each is measured once, in order, however often the loop
or the caller is cut off; and a caller that says nothing is not waited for without end."""

from __future__ import annotations

import numpy as np

from tests.support.synthetic_spaces import DirectMeasurer, Response, large_space
from tuner.measure.outcome import Trial
from tuner.search.domain import Domain
from tuner.search.external import PATIENCE_S, ExternalSearcher, Proposals
from tuner.spaces.core.space import Config
from tuner.tuning import Budget, Stopped, StopReason, TrialRecorded, tune

SPACE = large_space()
RESPONSE = Response(space=SPACE)


def proposed(count: int, seed: int = 0) -> list[Config]:
    points = np.unique(SPACE.sample(np.random.default_rng(seed), 2 * count), axis=0)
    np.random.default_rng(seed).shuffle(points)
    return [SPACE.config(point) for point in points[:count]]


class Caller:
    """Proposes a few configs more each time the loop sleeps, then closes."""

    def __init__(self, configs: list[Config], *, step: int = 7, close: bool = True) -> None:
        self._configs, self._step, self._close = configs, step, close
        self.sent = 0
        self.now_s = 0.0

    def proposals(self, first: int) -> Proposals:
        closed = self._close and self.sent >= len(self._configs)
        return Proposals(configs=tuple(self._configs[first : self.sent]), closed=closed)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.sent = min(self.sent + self._step, len(self._configs))

    def clock(self) -> float:
        return self.now_s


def run(
    caller: Caller, recorded: list[Trial], *, trials: int = 1000, stop_at: int = 10**9
) -> StopReason | None:
    """Runs the loop, and cuts it off where `stop_at` trials are recorded."""
    searcher = ExternalSearcher(Domain(SPACE), caller.proposals, clock=caller.clock)
    events = tune(
        space=SPACE,
        searcher=searcher,
        measurer=DirectMeasurer(SPACE, RESPONSE, capacity=4),
        budget=Budget(trials=trials),
        clock=caller.clock,
        recorded=tuple(recorded),
        waiting=lambda: searcher.waiting,
        sleep=caller.sleep,
    )
    for event in events:
        match event:
            case TrialRecorded(trial=trial):
                recorded.append(trial)
                if len(recorded) >= stop_at:
                    return None
            case Stopped(result=result):
                return result.reason
    raise AssertionError("the loop ended without a result")


def test_a_search_that_is_killed_and_continued_loses_and_doubles_nothing() -> None:
    configs = proposed(200)
    caller, recorded = Caller(configs), list[Trial]()
    for stop_at in (1, 2, 37, 38, 90, 150, 199):
        assert run(caller, recorded, stop_at=stop_at) is None
    assert run(caller, recorded) is StopReason.EXHAUSTED
    assert sorted(trial.number for trial in recorded) == list(range(201))  # and the default
    measured = [str(trial.config) for trial in recorded if trial.config]
    assert sorted(measured) == sorted(map(str, configs))


def test_a_config_that_is_proposed_again_is_not_measured_again() -> None:
    configs = proposed(20)
    recorded: list[Trial] = []
    assert run(Caller([*configs, *configs[:9], *configs]), recorded) is StopReason.EXHAUSTED
    assert len(recorded) == 21


def test_the_budget_ends_an_external_search_too() -> None:
    recorded: list[Trial] = []
    assert run(Caller(proposed(50), close=False), recorded, trials=12) is StopReason.TRIALS
    assert len(recorded) == 12


def test_a_caller_that_says_nothing_is_given_up() -> None:
    caller, recorded = Caller(proposed(5), close=False), list[Trial]()
    assert run(caller, recorded) is StopReason.EXHAUSTED
    assert len(recorded) == 6 and PATIENCE_S <= caller.now_s < 1.1 * PATIENCE_S
