"""What a GPU's candidates take by their sketches' own estimates, the same by which
spaces are judged: a batch at once."""

from __future__ import annotations

from math import log2

import numpy as np

from tuner.cost_model.model import Features
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.core.space import Points, Value
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cuda.facts import KernelFacts
from tuner.target.occupancy import resident_warps
from tuner.target.target import Target

# of the knob of a sketch that decides what a block takes
_SHAPING = (KnobRole.BLOCK_TILE, KnobRole.ROW_SHAPE)
_NOTHING = (
    0.0,
    64.0,
    # log2 of registers, and more resident warps than there are: of a knob that a candidate
    # does not use
)


class CudaFootprint:
    """Points (n, knobs) of a space → log2 of registers of a thread and of resident
    warps of a multiprocessor, shape (n, 2). Of several kernels the most registers and
    the fewest warps."""

    def __init__(self, space: TargetSpace[KernelFacts]) -> None:
        self._space = space.space
        place = {knob.name: number for number, knob in enumerate(self._space.knobs)}
        self._tables: list[tuple[int, Features]] = []
        for facts in distinct_facts(space):
            for knob in facts.knobs:
                if knob.role in _SHAPING:
                    table = np.array(
                        [_taken(facts, value, space.target) for value in knob.values], np.float32
                    )
                    self._tables.append((place[knob.name], table))

    def __call__(self, points: Points) -> Features:
        active = self._space.active[points[:, 0]]
        taken = np.tile(np.array(_NOTHING, np.float32), (len(points), 1))
        for column, table in self._tables:
            own = table[points[:, column]]
            used = active[:, column]
            taken[used, 0] = np.maximum(taken[used, 0], own[used, 0])
            taken[used, 1] = np.minimum(taken[used, 1], own[used, 1])
        return taken


def distinct_facts(space: TargetSpace[KernelFacts]) -> list[KernelFacts]:
    """Of every sketch in the space, once each."""
    every = (sketch.facts for sketches in space.sketches.values() for sketch in sketches)
    return [*{facts.owner: facts for facts in every}.values()]


def _taken(facts: KernelFacts, value: Value, target: Target) -> tuple[float, float]:
    assert isinstance(value, tuple)
    footprint = facts.footprint(value)
    warps = resident_warps(
        target,
        threads=footprint.block,
        registers=footprint.registers,
        shared_bytes=footprint.shared_bytes,
    )
    return log2(footprint.registers), log2(warps)
