"""The default schedule on a GPU: as on a CPU, elementwise stages inlined and nothing
else done, but for one thread an element.

A loop on a GPU has to be bound to threads, so nothing less runs there. It is the first
point of every space: blocks of a warp or two of threads, one element or one row a
thread block, operands read where they are, no loop unrolled.
"""

from __future__ import annotations

from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cuda.facts import KernelFacts
from tuner.spaces.program.program import Program

FIRST = 0


def default_cuda_program(space: TargetSpace[KernelFacts]) -> Program:
    """Raises IllegalSchedule where not even this fits the GPU."""
    return space.program(space.space.config(space.space.unrank(FIRST)))
