"""Features for a space about which nothing is known but its knobs: users' templates,
recorded tables without features.

They rank within one space only; features computed from the expression (features.py) are
what carries over to other workloads.
"""

from __future__ import annotations

from math import log2

import numpy as np

from tuner.cost_model.model import Features
from tuner.spaces.core.space import Points, Space, Value


class KnobEncoding:
    """A `Featurizer`: for each knob its index scaled to [0, 1], and log2 of each number
    in its value; -1 where a sketch lacks it."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._tables = [_table(knob.values) for knob in space.knobs]

    @property
    def width(self) -> int:
        return sum(table.shape[1] for table in self._tables)

    def __call__(self, points: Points) -> Features:
        active = self._space.active[points[:, 0]]
        active[:, 0] = True
        blocks = [
            np.where(active[:, column, None], table[points[:, column]], np.float32(-1.0))
            for column, table in enumerate(self._tables)
        ]
        return np.concatenate(blocks, axis=1).astype(np.float32)


def _table(values: tuple[Value, ...]) -> Features:
    """One row for each value of a knob; words are told apart by their index alone."""
    scale = max(1, len(values) - 1)
    numbers = [_numbers(value) for value in values]
    width = max(len(row) for row in numbers)
    rows = [
        [index / scale, *row, *([0.0] * (width - len(row)))] for index, row in enumerate(numbers)
    ]
    return np.array(rows, np.float32)


def _numbers(value: Value) -> list[float]:
    if isinstance(value, str):
        return []
    parts = (value,) if isinstance(value, int) else value
    return [log2(1 + part) if part >= 0 else -log2(1 - part) for part in parts]
