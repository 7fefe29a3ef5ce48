"""A program's record beside the database: what has a tuned kernel, and a job of what has not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tuner.api.estimates import Estimator, TooFewKernels
from tuner.db import jobs, promoted_kernels, targets, workloads
from tuner.db.engine import Database
from tuner.db.jobs import Job, NewJob
from tuner.errors import UsageError
from tuner.measure.cache import refuse_cold
from tuner.measure.objective import refuse_goal
from tuner.settings import Settings
from tuner.target.target import Target
from tuner.trace.record import Trace, TracedCall
from tuner.trace.workloads import Expressed, weighted
from tuner.workers.jobs.model_jobs import CALLS
from tuner.workload.spec import to_document
from tuner.workload.workload import Workload

State = Literal["tuned", "untuned", "fallback"]
# Of the time that kernels could take over, what a job tunes: the rest is many small calls.
TUNED_SHARE = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """Calls of one kind, and what kernels take or would take for them."""

    call: TracedCall
    state: State  # all its kernels are promoted; some are not; there can be none
    reason: str | None  # of a fallback
    # Seconds of all calls by kernels, measured or estimated; None where that is not known.
    kernels_s: float | None
    is_measured: bool  # whether every part of that time was

    @property
    def gain_s(self) -> float:
        """Seconds that kernels save: at least 0, since a slower one is not used."""
        return 0.0 if self.kernels_s is None else max(self.call.total_s - self.kernels_s, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The calls of a trace, the longest in all first, on one target."""

    trace: Trace
    calls: tuple[Covered, ...]
    unestimated: str | None = None  # why nothing says what untuned calls would take

    def seconds(self, state: State) -> float:
        """Of the time of all calls, that of those in this state."""
        return sum(each.call.total_s for each in self.calls if each.state == state)

    @property
    def gain_s(self) -> float:
        return sum(each.gain_s for each in self.calls)


def coverage(
    database: Database,
    trace: Trace,
    calls: Sequence[Expressed],
    target: Target,
    threads: int,
) -> Coverage:
    """Which calls have kernels, and what these take, or would take by the estimate."""
    parts = {part.workload.key: part.workload for call in calls for part in call.parts}
    with database.read() as session:
        stored = targets.find(session, target.key) or target  # with its limits
        promoted = promoted_kernels.promoted_of(session, [*parts], target.key, threads)
    seconds = {key: kernel.median_s for key, kernel in promoted.items()}
    unmeasured = [each for key, each in parts.items() if key not in promoted]
    unestimated = None
    try:
        seconds |= _estimated(database, unmeasured, stored, threads)
    except TooFewKernels as error:
        unestimated = str(error)
    return Coverage(
        trace=trace,
        calls=tuple(_covered(each, set(promoted), seconds) for each in calls),
        unestimated=unestimated,
    )


def _estimated(
    database: Database, unmeasured: Sequence[Workload], target: Target, threads: int
) -> dict[str, float]:
    """Seconds by the estimate. Raises TooFewKernels."""
    if not unmeasured:
        return {}
    answer = Estimator(database).estimate(unmeasured, target, threads)
    return {
        workload.key: item.median_s for workload, item in zip(unmeasured, answer.items, strict=True)
    }


def _covered(each: Expressed, promoted: set[str], seconds: dict[str, float]) -> Covered:
    keys = [part.workload.key for part in each.parts]
    kernels_s: float | None = None
    if keys and all(key in seconds for key in keys):
        kernels_s = each.call.count * sum(
            part.calls * seconds[part.workload.key] for part in each.parts
        )
    is_measured = bool(keys) and promoted.issuperset(keys)
    state: State = "fallback" if not keys else "tuned" if is_measured else "untuned"
    return Covered(
        call=each.call,
        state=state,
        reason=each.reason,
        kernels_s=kernels_s,
        is_measured=is_measured,
    )


def chosen_calls(calls: Sequence[Expressed]) -> list[Expressed]:
    """The fewest calls that take TUNED_SHARE of the time that kernels could take over.

    Raises UsageError where there is none.
    """
    able = sorted((each for each in calls if each.parts), key=lambda each: -each.call.total_s)
    if not able:
        raise UsageError(
            "the record has no call that a kernel could compute; tuner coverage FILE says why"
        )
    whole_s, chosen, so_far_s = sum(each.call.total_s for each in able), [], 0.0
    for each in able:
        chosen.append(each)
        so_far_s += each.call.total_s
        if so_far_s >= TUNED_SHARE * whole_s:
            break
    return chosen


def submit_calls(
    database: Database,
    chosen: Sequence[Expressed],
    target: Target,
    settings: Settings,
    *,
    seconds: float | None,
) -> Job:
    """Queues one job for the kernels of calls, which share its budget.

    As in a model's job a round of trials goes where it promises to save most of the time, by
    how often each kernel is called.
    """
    refuse_cold(settings.cache, "recorded calls share one budget of warm trials")
    refuse_goal(settings.goal, "recorded calls are tuned for the time of all")
    parts = weighted(chosen)
    with database.write("submit") as session:
        targets.remember(session, target)
        keys = tuple(
            workloads.remember(session, part.workload, to_document(part.workload))
            for part in parts.values()
        )
        new = NewJob(
            workloads=keys,
            target=target.key,
            threads=settings.threads,
            trials=settings.trials,
            seconds=seconds,
            strategy=settings.strategy,
            seed=settings.seed,
            kind=jobs.MODEL,
            settings={CALLS: {key: part.calls for key, part in parts.items()}},
        )
        job, _ = jobs.create(session, new)
    return job
