"""Verdicts on foreign kernels: held against the machine's limits, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from tuner.measure.foreign.verdict import Verdict, VerdictName
from tuner.target.roofline import implausible, roofline_fraction
from tuner.workers.fleet.messages import Problem
from tuner.workers.jobs.plausibility import work_of


def within_limits(verdict: Verdict, problem: Problem) -> Verdict:
    """The verdict with the share of the machine's limit, or that its time cannot be.

    A foreign kernel has one thread.
    """
    if verdict.time is None or problem.target.limits is None:
        return verdict
    work = work_of(replace(problem, threads=1))
    reason = implausible(verdict.time.median_s, work, problem.target)
    if reason is not None:
        return Verdict(name=VerdictName.IMPLAUSIBLE, message=reason)
    fraction = roofline_fraction(verdict.time.median_s, work, problem.target)
    return replace(verdict, time=replace(verdict.time, roofline_fraction=fraction))


def verdict_document(verdict: Verdict) -> Mapping[str, Any]:
    """The verdict as JSON values."""
    element, time = verdict.element, verdict.time
    return {
        "verdict": str(verdict.name),
        "message": verdict.message,
        "element": None
        if element is None
        else {
            **asdict(element),
            "index": list(element.index),
            "value": _number(element.value),
            "expected": _number(element.expected),
        },
        "max_rel_error": verdict.max_rel_error,
        "time": None
        if time is None
        else {
            "median_s": time.median_s,
            "ci95_s": list(time.ci95_s),
            "roofline_fraction": time.roofline_fraction,
            "rival": time.rival,
            "rival_median_s": time.rival_median_s,
            "ratio": time.ratio.value,
            "ratio_ci95": list(time.ratio.ci95),
        },
    }


def _number(value: float) -> float | str:
    """JSON has no word for what is not finite."""
    return value if value - value == 0 else str(value)
