"""Judges timings by the machine's measured limits, which are remeasured before a refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tuner.measure.outcome import Failed, FailureKind, Timed, Trial
from tuner.spaces.rewrite.algorithm import fewest_flops
from tuner.target.limits import LimitsError
from tuner.target.merged_limits import highest
from tuner.target.roofline import Work, floor_seconds, implausible, is_steady, roofline_fraction
from tuner.target.target import Limits, Target
from tuner.workers.fleet.messages import Problem
from tuner.workload.compulsory import least_bytes


def work_of(problem: Problem) -> Work:
    """The least that a kernel of the problem has to compute and move."""
    expression = problem.workload.expression
    dtype = expression.inputs[0].dtype if expression.inputs else "float32"
    nbytes = least_bytes(problem.workload)
    return Work(
        flops=fewest_flops(problem.workload, problem.target),
        nbytes=nbytes,
        dtype=dtype,
        threads=problem.threads,
    )


class Judge:
    """Judges timings of one workload; without limits of the target, all are plausible."""

    def __init__(
        self,
        problem: Problem,
        *,
        remeasured: Callable[[], Limits],
        on_limits: Callable[[Limits], None],
    ) -> None:
        """`remeasured` measures the limits again, at most once, or raises LimitsError.

        `on_limits` is called with the highest of both.
        """
        self._target = problem.target
        self._work = work_of(problem)
        self._measure_again = remeasured
        self._on_limits = on_limits
        self._remeasured = False

    @property
    def floor_s(self) -> float | None:
        """Seconds of one call at the highest rates ever measured.

        None if they are unknown, or the machine's speed varies too much.
        """
        limits = self._target.limits
        if limits is None or not is_steady(limits):
            return None
        return floor_seconds(self._work, self._target)

    def fraction(self, median_s: float) -> float | None:
        """The fraction of the roofline that a median reaches; None without limits."""
        if self._target.limits is None:
            return None
        return roofline_fraction(median_s, self._work, self._target)

    def judged(self, trial: Trial) -> Trial:
        """The trial, or the same trial failed as implausible."""
        outcome = trial.outcome
        if self._target.limits is None or not isinstance(outcome, Timed):
            return trial
        reason = implausible(outcome.median_s, self._work, self._target)
        if reason is not None and not self._remeasured:
            self._target = self._with_new_limits(self._target, self._target.limits)
            reason = implausible(outcome.median_s, self._work, self._target)
        if reason is None:
            return trial
        return replace(trial, outcome=Failed(kind=FailureKind.IMPLAUSIBLE, message=reason))

    def _with_new_limits(self, target: Target, limits: Limits) -> Target:
        self._remeasured = True
        try:
            merged = highest(limits, self._measure_again())
        except LimitsError:
            return target
        self._on_limits(merged)
        return replace(target, limits=merged)
