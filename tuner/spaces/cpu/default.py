"""The default schedule on a CPU: the stages as they stand, where their tensors fit.

Where they do not, it is the first point of the algorithm that needs least memory.
"""

from __future__ import annotations

from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cpu.facts import LoopNestFacts
from tuner.spaces.default_schedule import default_program
from tuner.spaces.program.program import Program
from tuner.workload.budgets import BUDGETS, stated_bytes


def default_cpu_program(space: TargetSpace[LoopNestFacts]) -> Program:
    """Of the space's workload."""
    if stated_bytes(space.workload.expression) <= BUDGETS.nbytes:
        return default_program(space.workload)
    least = min(space.sketches, key=lambda name: space.algorithms[name].nbytes)
    return space.program({"sketch": least})
