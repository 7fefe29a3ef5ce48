"""What to tune so that estimates become sure where it matters: active learning.

The choice is made once, before anything is tuned: how much surer a measurement makes the
predictor does not depend on what it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.api.estimates import Estimator
from tuner.errors import UsageError
from tuner.target.target import Target
from tuner.workload.workload import Workload

# Of a workload: workers that start, the first plan and the race take some ten of them.
LEAST_S = 20.0
MOST_S = 30 * 86_400.0  # as of the setting `seconds`
MOST = 64  # workloads of a job


class NothingToLearn(UsageError):
    """All workloads were measured, or none matters."""

    code = "nothing_to_learn"


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningPlan:
    workloads: tuple[Workload, ...]  # the most telling first
    seconds: float  # for each


def learning_plan(
    estimator: Estimator,
    asked: Sequence[Workload],
    weights: Sequence[float],
    target: Target,
    threads: int,
    seconds: float,
) -> LearningPlan:
    """Spends `seconds` where the predictor is unsure and the weights are high.

    Raises UsageError for a budget outside `LEAST_S` to `MOST_S` and for weights that are not
    positive numbers, NothingToLearn where each workload has a kernel, WorkloadError for one
    that has no space.
    """
    if not seconds >= LEAST_S:  # as is NaN
        raise UsageError(f"{seconds:g} s are too few to tune a workload; give {LEAST_S:g} or more")
    if seconds > MOST_S:
        raise UsageError(f"{seconds:g} s are too many; give {MOST_S:.0f} (30 days) or less")
    count = min(MOST, int(seconds / LEAST_S))
    chosen = estimator.most_telling(asked, weights, target, threads, count)
    if not chosen:
        raise NothingToLearn(
            f"none of the {len(asked)} workloads needs tuning: each has a kernel or no weight; "
            f"tuner tune SPEC improves a kernel"
        )
    return LearningPlan(workloads=tuple(chosen), seconds=seconds / len(chosen))
