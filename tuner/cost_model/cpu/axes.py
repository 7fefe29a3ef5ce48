"""The axes of a nest that have loops of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from tuner.spaces.cpu.facts import LoopNestFacts
from tuner.workload.expression import Axis

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class NestAxes:
    """Axes of one group's nest, spatial ones first.

    Axes of one element are left out where others remain, because their loops do nothing.
    """

    spatial: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    repeated: frozenset[str]  # of `spatial`, those of one element that are computed again
    instruction_axes: frozenset[str]  # of `reduced`, those that one instruction takes as a whole

    @cached_property
    def names(self) -> list[str]:
        """Of all axes, in their order."""
        return [axis.name for axis in (*self.spatial, *self.reduced)]

    @cached_property
    def extents(self) -> Ints:
        """Of all axes, (axes,)."""
        return np.array([axis.extent for axis in (*self.spatial, *self.reduced)], np.int64)

    @cached_property
    def lengths(self) -> NDArray[np.float32]:
        """The extents as numbers that bound numbers of elements, (axes,)."""
        return self.extents.astype(np.float32)

    @cached_property
    def stepped(self) -> NDArray[np.bool_]:
        """Whether a reduction axis advances by iterations of a loop, (reductions,)."""
        return np.array([axis.name not in self.instruction_axes for axis in self.reduced], np.bool_)

    @cached_property
    def points(self) -> int:
        """Points of all axes together."""
        return prod(axis.extent for axis in (*self.spatial, *self.reduced))


def nest_axes(facts: LoopNestFacts) -> NestAxes:
    """The axes with loops of the nests that the facts describe."""
    repeated = frozenset(facts.fusion.repeated if facts.fusion is not None else ())
    own = [axis for axis in facts.spatial if axis.name not in repeated]
    again = [axis for axis in facts.spatial if axis.name in repeated]
    reduced = _with_loops(facts.reduction)
    if facts.columns is not None:  # the column has a loop whatever its extent
        reduced = (*_with_loops(facts.reduction[:-1], 0), facts.reduction[-1])
    return NestAxes(
        spatial=(*_with_loops(own), *again),
        reduced=reduced,
        repeated=repeated,
        instruction_axes=frozenset(facts.instruction_axes),
    )


def _with_loops(axes: Sequence[Axis], fewest: int = 1) -> tuple[Axis, ...]:
    """Those of more than one element; the last `fewest` where none has more."""
    return tuple(axis for axis in axes if axis.extent > 1) or tuple(axes[len(axes) - fewest :])
