"""A program's record beside the database: what has a tuned kernel, and a job of what has not."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.api import coverage as covering
from tuner.api.coverage import RECORDED, Coverage, RecordedCalls, kept
from tuner.api.estimates import Estimator
from tuner.db import jobs, targets, workloads
from tuner.db.engine import Database
from tuner.db.jobs import Job, NewJob
from tuner.errors import UsageError
from tuner.measure.cache import refuse_cold
from tuner.measure.objective import refuse_goal
from tuner.settings import Settings
from tuner.target.target import Target
from tuner.trace.record import Trace
from tuner.trace.replacing import refusal
from tuner.trace.workloads import Expressed, weighted
from tuner.workers.jobs.model_jobs import CALLS
from tuner.workload.spec import to_document

# Of the time that kernels could take over, what a job tunes: the rest is many small calls.
TUNED_SHARE = 0.99


def coverage(
    database: Database,
    trace: Trace,
    calls: Sequence[Expressed],
    target: Target,
    threads: int,
) -> Coverage:
    """Which calls have kernels, and what these take, or would take by the estimate."""
    return covering.coverage(
        database,
        Estimator(database),
        [_recorded(each) for each in calls],
        {part.workload.key: part.workload for each in calls for part in each.parts},
        trace.total_s,
        target,
        threads,
    )


def _recorded(each: Expressed) -> RecordedCalls:
    return RecordedCalls(
        call=each.call,
        parts={part.workload.key: part.calls for part in each.parts},
        reason=each.reason,
        is_replaceable=refusal(each.call, each.binding) is None,
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
    calls: Sequence[Expressed],
    total_s: float,
    target: Target,
    settings: Settings,
    *,
    seconds: float | None,
) -> Job:
    """Queues one job for the kernels of those calls that take the time, which share its budget.

    As in a model's job a round of trials goes where it promises to save most of the time, by
    how often each kernel is called. The job keeps all calls, of which it can be asked what has
    kernels by now. Raises UsageError where no kernel could compute any.
    """
    refuse_cold(settings.cache, "recorded calls share one budget of warm trials")
    refuse_goal(settings.goal, "recorded calls are tuned for the time of all")
    parts = weighted(chosen_calls(calls))
    with database.write("submit") as session:
        targets.remember(session, target)
        for each in calls:
            for part in each.parts:
                workloads.remember(session, part.workload, to_document(part.workload))
        new = NewJob(
            workloads=tuple(parts),
            target=target.key,
            threads=settings.threads,
            trials=settings.trials,
            seconds=seconds,
            strategy=settings.strategy,
            seed=settings.seed,
            kind=jobs.MODEL,
            settings={
                CALLS: {key: part.calls for key, part in parts.items()},
                RECORDED: kept([_recorded(each) for each in calls], total_s),
            },
        )
        job, _ = jobs.create(session, new)
    return job
