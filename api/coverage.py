"""Which recorded calls of a program have tuned kernels, and what these gain.

A job of recorded calls keeps them in its settings, so that what it has reached by now can be
asked at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tuner.api.estimates import Estimator, TooFewKernels
from tuner.db import promoted_kernels, targets, workloads
from tuner.db.engine import Database, Session
from tuner.db.errors import NotFound
from tuner.db.jobs import Job
from tuner.target.target import Target
from tuner.trace.record import TracedCall, finite, read_call
from tuner.workload.spec import from_document
from tuner.workload.workload import Workload

State = Literal["tuned", "untuned", "fallback"]
RECORDED = "recorded"  # in a job's settings: the calls that it was made of
# Seconds that `tuner run` takes for a call of an operator with kernels, beside the kernel:
# `python -m benchmarks.traced --overhead` measures it.
LOOK_S = {"numpy": 0.5e-6, "torch": 15e-6}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCalls:
    """Calls of one kind, and the kernels that could compute them."""

    call: TracedCall
    parts: Mapping[str, int]  # how often a call runs each kernel, by the workload's key
    reason: str | None  # why no kernel could
    is_replaceable: bool  # whether `tuner run` can let kernels answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """Calls of one kind, and what kernels take or would take for them."""

    call: TracedCall
    state: State  # all its kernels are promoted; some are not; there can be none
    reason: str | None  # of a fallback
    # Seconds of all calls by kernels, measured or estimated; None where that is not known.
    kernels_s: float | None
    is_measured: bool  # whether every part of that time was
    is_answered: bool = False  # by `tuner run`
    run_gain_s: float = 0.0  # seconds that it saves; less than 0 where it only looks at calls

    @property
    def gain_s(self) -> float:
        """Seconds that kernels save: at least 0, since a slower one is not used."""
        return 0.0 if self.kernels_s is None else max(self.call.total_s - self.kernels_s, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The calls of a record, the longest in all first, on one target."""

    calls: tuple[Covered, ...]
    total_s: float  # of all calls, those that are not listed too
    unestimated: str | None = None  # why nothing says what untuned calls would take

    def seconds(self, state: State) -> float:
        """Of the time of all calls, that of those in this state."""
        return sum(each.call.total_s for each in self.calls if each.state == state)

    @property
    def gain_s(self) -> float:
        return sum(each.gain_s for each in self.calls)

    @property
    def run_gain_s(self) -> float:
        """Seconds that `tuner run` saves, which looks at each call of an operator."""
        return sum(each.run_gain_s for each in self.calls)


def coverage(
    database: Database,
    estimator: Estimator,
    calls: Sequence[RecordedCalls],
    parts: Mapping[str, Workload],
    total_s: float,
    target: Target,
    threads: int,
) -> Coverage:
    """Which calls have kernels, and what these take, or would take by the estimate.

    `parts` has the workloads of all calls by key.
    """
    with database.read() as session:
        stored = targets.find(session, target.key) or target  # with its limits
        promoted = promoted_kernels.promoted_of(session, [*parts], target.key, threads)
    seconds = {key: kernel.median_s for key, kernel in promoted.items()}
    unmeasured = [each for key, each in parts.items() if key not in promoted]
    unestimated = None
    try:
        seconds |= _estimated(estimator, unmeasured, stored, threads)
    except TooFewKernels as error:
        unestimated = str(error)
    covered = [_covered(each, set(promoted), seconds) for each in calls]
    return Coverage(calls=_with_answers(covered, calls), total_s=total_s, unestimated=unestimated)


def _estimated(
    estimator: Estimator, unmeasured: Sequence[Workload], target: Target, threads: int
) -> dict[str, float]:
    """Seconds by the estimate. Raises TooFewKernels."""
    if not unmeasured:
        return {}
    answer = estimator.estimate(unmeasured, target, threads)
    return {
        workload.key: item.median_s for workload, item in zip(unmeasured, answer.items, strict=True)
    }


def _covered(each: RecordedCalls, promoted: set[str], seconds: dict[str, float]) -> Covered:
    kernels_s: float | None = None
    if each.parts and each.parts.keys() <= seconds.keys():
        a_call_s = sum(count * seconds[key] for key, count in each.parts.items())
        kernels_s = each.call.count * a_call_s
    is_measured = bool(each.parts) and promoted.issuperset(each.parts)
    state: State = "fallback" if not each.parts else "tuned" if is_measured else "untuned"
    return Covered(
        call=each.call,
        state=state,
        reason=each.reason,
        kernels_s=kernels_s,
        is_measured=is_measured,
    )


def _with_answers(
    covered: Sequence[Covered], calls: Sequence[RecordedCalls]
) -> tuple[Covered, ...]:
    """With what `tuner run` does. It leaves an operator alone where looking at all its calls
    takes more than kernels save."""
    gains = [_run_gain_s(*pair) for pair in zip(covered, calls, strict=True)]
    by_operator: dict[tuple[str, str], float] = {}
    for each, (gain_s, _) in zip(covered, gains, strict=True):
        operator = each.call.library, each.call.operator
        by_operator[operator] = by_operator.get(operator, 0.0) + gain_s
    return tuple(
        replace(each, is_answered=is_answered, run_gain_s=gain_s)
        if by_operator[each.call.library, each.call.operator] > 0
        else each
        for each, (gain_s, is_answered) in zip(covered, gains, strict=True)
    )


def _run_gain_s(each: Covered, recorded: RecordedCalls) -> tuple[float, bool]:
    """Seconds that calls save where their operator is looked at, and whether by a kernel."""
    look_s = each.call.count * LOOK_S.get(each.call.library, 0.0)
    if each.state == "tuned" and each.kernels_s is not None and recorded.is_replaceable:
        gain_s = each.call.total_s - each.kernels_s - look_s
        if gain_s > 0:
            return gain_s, True
    return -look_s, False


def kept(calls: Sequence[RecordedCalls], total_s: float) -> dict[str, Any]:
    """The calls as a job keeps them."""
    return {
        "total_s": total_s,
        "calls": [
            {
                "library": each.call.library,
                "operator": each.call.operator,
                "arguments": [finite(argument) for argument in each.call.arguments],
                "count": each.call.count,
                "total_s": each.call.total_s,
                "parts": dict(each.parts),
                "reason": each.reason,
                "replaceable": each.is_replaceable,
            }
            for each in calls
        ],
    }


def of_job(session: Session, job: Job) -> tuple[list[RecordedCalls], dict[str, Workload], float]:
    """A job's calls, their workloads by key, and the time of all recorded calls.

    Raises NotFound for a job that was not made of recorded calls.
    """
    document = job.settings.get(RECORDED)
    if document is None:
        raise NotFound(
            f"job {job.id} was not made of recorded calls; tuner tune --trace makes such jobs"
        )
    calls = [
        RecordedCalls(
            call=read_call(each),
            parts=each["parts"],
            reason=each["reason"],
            is_replaceable=each["replaceable"],
        )
        for each in document["calls"]
    ]
    keys = dict.fromkeys(key for each in calls for key in each.parts)
    parts = {key: from_document(workloads.get(session, key).document) for key in keys}
    return calls, parts, document["total_s"]
