"""What a GPU's candidates take by their sketches' own estimates, the same by which
spaces are judged: a batch at once."""

from __future__ import annotations

from math import log2

import numpy as np

from tuner.cost_model.model import Features
from tuner.spaces.core.space import Points
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cuda.facts import KernelFacts
from tuner.spaces.cuda.limits import Footprint
from tuner.target.occupancy import resident_warps
from tuner.target.target import Target

# log2 of no registers, and of the most resident warps that there are: of a knob that a
# candidate does not use.
_UNUSED = (0.0, 6.0)


class CudaFootprint:
    """Points (n, knobs) of a space → log2 of the registers of a thread and of the
    resident warps of a multiprocessor, shape (n, 2).

    Of several kernels the most registers and the fewest warps.
    """

    def __init__(self, space: TargetSpace[KernelFacts]) -> None:
        self._space = space.space
        columns = {knob.name: column for column, knob in enumerate(self._space.knobs)}
        self._tables: list[tuple[int, Features]] = [
            (
                columns[facts.block.name],
                np.array([_figures(each, space.target) for each in facts.footprints], np.float32),
            )
            for facts in distinct_facts(space)
            if facts.block.is_open
        ]

    def __call__(self, points: Points) -> Features:
        active = self._space.active[points[:, 0]]
        figures = np.tile(np.array(_UNUSED, np.float32), (len(points), 1))
        for column, table in self._tables:
            own = table[points[:, column]]
            used = active[:, column]
            figures[used, 0] = np.maximum(figures[used, 0], own[used, 0])
            figures[used, 1] = np.minimum(figures[used, 1], own[used, 1])
        return figures


def distinct_facts(space: TargetSpace[KernelFacts]) -> list[KernelFacts]:
    """The facts of every sketch in the space, once each."""
    every = (sketch.facts for sketches in space.sketches.values() for sketch in sketches)
    return [*{facts.owner: facts for facts in every}.values()]


def _figures(footprint: Footprint, target: Target) -> tuple[float, float]:
    """log2 of the registers of a thread and of the resident warps of a multiprocessor."""
    warps = resident_warps(
        target,
        threads=footprint.block,
        registers=footprint.registers,
        shared_bytes=footprint.shared_bytes,
    )
    return log2(footprint.registers), log2(warps)
