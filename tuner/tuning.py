"""The tuning loop of one workload: ask, measure, tell, until there is a reason to stop.

The loop is a generator of events. A trial's event is yielded before the searcher is told
the trial. So a caller that stores trials on their events never has a searcher that knows
more than the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count as counting

from tuner.errors import UsageError
from tuner.measure.measurer import Measurer
from tuner.measure.outcome import Candidate, Timed, Trial, kept_pace
from tuner.search.searcher import Plan, Searcher
from tuner.spaces.core.space import Space

_POLL_S = 0.25  # between two checks of cancellation and time budget while workers are busy
# Share of the target's rate from which a job is done: the rest is within the noise of a
# measurement.
_NEAR_TARGET = 0.98
# Trials before a job may be done there, because the machine's limits were measured in only
# a few seconds.
_LEAST_TRIALS = 32
# A kernel that is faster than the target by this factor disproves it, and the job goes on.
_BEYOND_TARGET = 1.1


class StopReason(StrEnum):
    """Why a run ended."""

    TRIALS = "trials"  # the budget of trials is spent
    SECONDS = "seconds"  # the budget of time is spent
    TARGET = "target"  # the best time is within 2% of the target
    EXHAUSTED = "exhausted"  # every point of the space was tried
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a run may spend. Raises UsageError for a budget that allows nothing."""

    trials: int  # of the whole job, with recorded ones and the default schedule
    seconds: float | None = None  # wall time of this run
    # Whether candidates under way are waited for when the time is over and none was timed.
    # Making the inputs and references of a large workload may take longer than was given.
    waits_for_one: bool = False
    # Seconds of one call that no kernel can beat. The job ends within 2% of it.
    target_s: float | None = None

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise UsageError(
                f"a budget of {self.trials} trials is too small; it needs at least 1, for the "
                f"default schedule"
            )
        if self.seconds is not None and self.seconds <= 0:
            raise UsageError(
                f"a budget of {self.seconds} seconds is too small; give more than 0, or none "
                f"for no limit"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Elapsed:
    """Where the time of a run went."""

    total_s: float  # wall time of this run
    search_s: float  # wall time of asking and telling, in this run
    build_s: float  # seconds builders worked, over all trials
    measure_s: float  # seconds lanes were held, over all trials


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecorded:
    """A trial is final and must be stored now.

    The searcher is told the trial when the next event is asked for.
    """

    trial: Trial
    round: int = 0  # plans made before it
    # The model's score of its config before it was told; higher is better.
    predicted: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BestImproved:
    """A trial is faster than all before."""

    trial: Trial
    median_s: float
    previous_s: float | None  # None for the first that could be timed


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlanned:
    """The searcher refitted its model."""

    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """The result of a run."""

    reason: StopReason
    # Timed trials, the likeliest to be the fastest first, with the default schedule; at
    # most as many as were asked for.
    best: tuple[Trial, ...]
    trials: int  # recorded in all
    elapsed: Elapsed


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The run has ended; the last event."""

    result: TuningResult


Event = TrialRecorded | BestImproved | RoundPlanned | Stopped


def tune(
    *,
    space: Space,
    searcher: Searcher,
    measurer: Measurer,
    budget: Budget,
    clock: Callable[[], float],
    recorded: Sequence[Trial] = (),
    cancelled: Callable[[], bool] = lambda: False,
    best_count: int = 16,
    with_default: bool = True,
    waiting: Callable[[], bool] = lambda: False,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Event]:
    """Tunes one workload; the last event is `Stopped`.

    `searcher` is new. It is told the `recorded` trials of an earlier run of the job
    first, in their order. `clock` gives seconds. Trial 0 is the default schedule and
    comes first; it is left out unless `with_default`. Numbers that an earlier run left
    out are used before higher ones. When time, target or cancellation end the run,
    candidates in flight are abandoned: the caller closes the measurer. `best_count`
    limits the trials in the result. `waiting` says of a searcher that gave too few points
    whether more may come; then the loop asks again, and sleeps while nothing is measured.
    """
    loop = _Loop(
        space=space,
        searcher=searcher,
        measurer=measurer,
        budget=budget,
        clock=clock,
        recorded=recorded,
        cancelled=cancelled,
        with_default=with_default,
        waiting=waiting,
        sleep=sleep,
    )
    yield from loop.run(best_count)


class _Loop:
    """The state of one run."""

    def __init__(
        self,
        *,
        space: Space,
        searcher: Searcher,
        measurer: Measurer,
        budget: Budget,
        clock: Callable[[], float],
        recorded: Sequence[Trial],
        cancelled: Callable[[], bool],
        with_default: bool,
        waiting: Callable[[], bool],
        sleep: Callable[[float], None],
    ) -> None:
        self._space, self._searcher = space, searcher
        self._measurer, self._budget = measurer, budget
        self._clock, self._cancelled = clock, cancelled
        self._waiting, self._sleep = waiting, sleep
        self._trials = list(recorded)
        self._started = clock()
        self._search_s = 0.0
        self._numbers = _unused_numbers(recorded, 0 if with_default else 1)
        self._in_flight: set[int] = set()
        self._default_pending = with_default and all(trial.number != 0 for trial in recorded)
        self._exhausted = False
        self._best_s = min((s for s in map(median_of, recorded) if s is not None), default=None)
        self._plans_seen = 0

    def run(self, best_count: int) -> Iterator[Event]:
        self._tell(self._trials)
        self._plans_seen = len(self._searcher.plans)
        while True:
            reason = self._stop_reason()
            if reason is not None:
                break
            self._fill()
            if not self._in_flight:
                if not self._waiting():
                    reason = StopReason.EXHAUSTED
                    break
                self._sleep(_POLL_S)
            for trial in self._measurer.results(timeout_s=_POLL_S):
                yield from self._take(trial)
                if self._interrupted() is not None:
                    break
        result = TuningResult(
            reason=reason,
            best=_fastest(self._trials, best_count),
            trials=len(self._trials),
            elapsed=self._elapsed(),
        )
        yield Stopped(result=result)

    def _take(self, trial: Trial) -> Iterator[Event]:
        """Enters a trial that was measured, and its events."""
        self._in_flight.discard(trial.number)
        self._trials.append(trial)
        started = self._clock()
        predicted = self._searcher.forecast(trial.config)
        self._search_s += self._clock() - started
        yield TrialRecorded(trial=trial, round=len(self._searcher.plans), predicted=predicted)
        seconds = median_of(trial)
        if seconds is not None and (self._best_s is None or seconds < self._best_s):
            previous, self._best_s = self._best_s, seconds
            yield BestImproved(trial=trial, median_s=seconds, previous_s=previous)
        if self._stop_reason() is None:
            self._fill()  # before telling, so that workers are busy while a plan is made
        self._tell([trial])
        for plan in self._searcher.plans[self._plans_seen :]:
            self._plans_seen += 1
            yield RoundPlanned(plan=plan)

    def _fill(self) -> None:
        """Submits as many candidates as keep the measurer busy, within the budget."""
        if self._is_overdue():
            return
        free = self._measurer.capacity - len(self._in_flight)
        candidates: list[Candidate] = []
        count = min(free, self._budget.trials - len(self._trials) - len(self._in_flight))
        if count > 0 and self._default_pending:
            self._default_pending = False
            candidates.append(Candidate(number=next(self._numbers)))
            count -= 1
        if count > 0 and not self._exhausted:
            started = self._clock()
            points = self._searcher.ask(count)
            self._search_s += self._clock() - started
            self._exhausted = len(points) < count and not self._waiting()
            candidates += [
                Candidate(number=next(self._numbers), config=self._space.config(point))
                for point in points
            ]
        if candidates:
            self._in_flight.update(candidate.number for candidate in candidates)
            self._measurer.submit(candidates)

    def _tell(self, trials: Sequence[Trial]) -> None:
        started = self._clock()
        self._searcher.tell(trials)
        self._search_s += self._clock() - started

    def _interrupted(self) -> StopReason | None:
        """The reason to end the run even with candidates in flight; None to go on."""
        if self._cancelled():
            return StopReason.CANCELLED
        if self._is_overdue() and not self._waits_for_one():
            return StopReason.SECONDS
        if (
            self._budget.target_s is not None
            and self._best_s is not None
            and len(self._trials) >= _LEAST_TRIALS
            and self._best_s * _NEAR_TARGET
            <= self._budget.target_s
            <= self._best_s * _BEYOND_TARGET
            and kept_pace(self._trials)
        ):
            return StopReason.TARGET
        return None

    def _is_overdue(self) -> bool:
        limit = self._budget.seconds
        return limit is not None and self._clock() - self._started >= limit

    def _waits_for_one(self) -> bool:
        return self._budget.waits_for_one and self._best_s is None and bool(self._in_flight)

    def _stop_reason(self) -> StopReason | None:
        """The reason to submit no further candidates; None to go on."""
        reason = self._interrupted()
        if reason is not None:
            return reason
        if len(self._trials) >= self._budget.trials:
            return StopReason.TRIALS
        return None

    def _elapsed(self) -> Elapsed:
        return Elapsed(
            total_s=self._clock() - self._started,
            search_s=self._search_s,
            build_s=sum(trial.build_s for trial in self._trials),
            measure_s=sum(trial.measure_s for trial in self._trials),
        )


def _fastest(trials: Sequence[Trial], count: int) -> tuple[Trial, ...]:
    """The fastest timed trials: alternately the fastest at the usual pace and as timed.

    How much a kernel suffered from a slow core is an estimate. Where it is too high,
    trials that were timed in the slowest moments would otherwise take all places.
    """
    timed = [(trial.outcome, trial) for trial in trials if isinstance(trial.outcome, Timed)]
    orders = (
        sorted(timed, key=lambda entry: (entry[0].undisturbed_s, entry[1].number)),
        sorted(timed, key=lambda entry: (entry[0].median_s, entry[1].number)),
    )
    fastest = {trial.number: trial for pair in zip(*orders, strict=True) for _, trial in pair}
    return tuple(fastest.values())[:count]


def median_of(trial: Trial) -> float | None:
    """Seconds of one call of a trial; None for a failure."""
    return trial.outcome.median_s if isinstance(trial.outcome, Timed) else None


def _unused_numbers(recorded: Sequence[Trial], first: int) -> Iterator[int]:
    """Numbers for new trials: those that no recorded trial has, from `first` on."""
    used = {trial.number for trial in recorded}
    return (number for number in counting(first) if number not in used)
