"""What the estimate of cycles says of a workload before anything of it was measured.

The best of some random configs stands for the kernel that a search would find. Its terms
say of what kind the work is, in numbers that mean the same for every operator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.cost_model.arrays import Floats
from tuner.cost_model.cpu.cycles import ROUND_COSTS, cycles
from tuner.cost_model.cpu.nests import tables
from tuner.cost_model.cpu.work import nest_work
from tuner.cost_model.features import critical_share
from tuner.spaces.by_target import cpu_space
from tuner.target.target import Target
from tuner.workload.workload import Workload

# The least estimate of 1,024 was within a few percent of that of 512 for ten operators.
CONFIGS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class FastestEstimate:
    """The config of the least estimated cycles among random ones."""

    cycles: float  # by round costs
    shares: Floats  # (terms,), of each term in the cycles


def fastest_estimate(workload: Workload, target: Target, threads: int) -> FastestEstimate:
    """The same for the same arguments. Raises UsageError for a target that is no CPU, and
    what making a space raises."""
    space = cpu_space(workload, target, threads)
    points = space.space.sample(np.random.default_rng(0), CONFIGS)
    costs = ROUND_COSTS.astype(np.float32)[:, None]
    best = np.zeros((len(ROUND_COSTS), 1), np.float32)
    least = np.inf
    for number, combination in enumerate(space.sketches):
        own = points[points[:, 0] == number]
        if not len(own):
            continue
        units = np.zeros((len(ROUND_COSTS), len(own)), np.float32)
        for table in tables(space, combination):
            work = nest_work(table, own, target)
            shared = critical_share(work.nest.tasks, space.units_of(combination))
            units += cycles(table, work, target) * shared
        each = units * costs
        total = each.sum(axis=0)
        place = int(total.argmin())
        if total[place] < least:
            least, best = float(total[place]), each[:, place]
    whole = max(least, 1.0)
    return FastestEstimate(cycles=whole, shares=np.asarray(best / whole, np.float32).reshape(-1))
