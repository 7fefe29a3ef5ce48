"""How long one call takes.

Repeats are long enough for the clock and few enough for the lane. A timing that cannot
matter is abandoned early.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from tuner.measure.cache import COLD, WARM, Cache

Clock = Callable[[int, int], Sequence[float]]
"""`clock(number, repeat)`: `repeat` samples.

Each is the seconds of one call averaged over `number` calls in a row.
"""

# From here on one call is sample enough: it needs no warm-up, and disturbances are short
# beside it.
LONG_CALL_S = 1.0
# Up to so many times the best time, a candidate may be the best after another timing.
PROMISING_FACTOR = 1.05
# From so many times the best time on, a candidate is not worth the lane's time.
ABANDON_FACTOR = 3.0
# With cold caches there are so many times fewer samples: emptying them takes some 30 ms.
COLD_FEWER = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingPlan:
    """How much time goes into a timing."""

    budget_s: float = 0.03  # time spent on samples, warm-up not counted
    # A repeat lasts at least this: the clock and the call around it cost some 0.1 us.
    min_repeat_s: float = 0.0005
    min_samples: int = 3
    max_samples: int = 50
    max_number: int = 100_000  # calls within one repeat; caps kernels that do next to nothing
    # Of calls before the first sample: caches, branch predictors and frequency settle.
    warmup_s: float = 0.002
    cache: Cache = WARM  # COLD: caches are emptied before each sample, which then is one call


SCREENING = TimingPlan()
PROMOTION = TimingPlan(
    budget_s=0.3, min_repeat_s=0.001, min_samples=5, max_samples=300, warmup_s=0.05
)


def with_cache(plan: TimingPlan, cache: Cache) -> TimingPlan:
    """The plan for calls that find their caches so."""
    if cache == WARM:
        return plan
    most = max(plan.min_samples, plan.max_samples // COLD_FEWER)
    return replace(plan, cache=cache, max_samples=most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Samples of one call, in seconds."""

    samples_s: tuple[float, ...]
    abandoned: bool


def time_calls(
    clock: Clock,
    plan: TimingPlan,
    *,
    abandon_above_s: float | None,
    sweep: Callable[[], None] | None = None,
) -> Timing:
    """Samples of one call by the plan.

    `abandon_above_s`: when the first two calls both take longer, they are the samples,
    and the timing ends as abandoned. Of calls of a second or more the first decides; of
    calls shorter than a repeat, two repeats do. `sweep` empties the caches; plans with a
    cold cache need one, and each of their samples comes after it.
    """
    if plan.cache == COLD:
        assert sweep is not None, "cold caches need somebody who empties them"
        return _cold(clock, plan, sweep, abandon_above_s)
    call_s = clock(1, 1)[0]
    if call_s >= LONG_CALL_S:
        return Timing(
            samples_s=(call_s,), abandoned=abandon_above_s is not None and call_s > abandon_above_s
        )
    if abandon_above_s is not None and call_s > abandon_above_s:
        second_s = clock(1, 1)[0]
        # The first calls of a short kernel say little of it: it begins in cold caches,
        # and the clock itself takes its time.
        short = second_s < plan.min_repeat_s
        samples = tuple(clock(_number(plan, second_s), 2)) if short else (call_s, second_s)
        if min(samples) > abandon_above_s:
            return Timing(samples_s=samples, abandoned=True)
        call_s = min(samples)
    if call_s >= plan.budget_s > plan.warmup_s:  # it was warm-up enough, and long for the clock
        return Timing(samples_s=tuple(clock(1, plan.min_samples)), abandoned=False)
    number = _number(plan, call_s)
    call_s = clock(number, 1)[0]  # the first call's clock was coarse
    number = _number(plan, call_s)
    if plan.warmup_s > 0:
        clock(min(plan.max_number, max(1, ceil(plan.warmup_s / max(call_s, 1e-9)))), 1)
    repeat = _repeats(plan, number * call_s)
    return Timing(samples_s=tuple(clock(number, repeat)), abandoned=False)


def _cold(
    clock: Clock, plan: TimingPlan, sweep: Callable[[], None], abandon_above_s: float | None
) -> Timing:
    """Single calls, each with caches that were emptied before it."""

    def sample() -> float:
        sweep()
        return clock(1, 1)[0]

    samples = [sample(), sample()]
    if abandon_above_s is not None and min(samples) > abandon_above_s:
        return Timing(samples_s=tuple(samples), abandoned=True)
    while len(samples) < _repeats(plan, min(samples)):
        samples.append(sample())
    return Timing(samples_s=tuple(samples), abandoned=False)


def _number(plan: TimingPlan, call_s: float) -> int:
    return min(plan.max_number, max(1, ceil(plan.min_repeat_s / max(call_s, 1e-9))))


def _repeats(plan: TimingPlan, repeat_s: float) -> int:
    return min(plan.max_samples, max(plan.min_samples, int(plan.budget_s / max(repeat_s, 1e-9))))
