"""The terms of reductions over the places of rows, as one stage of plain axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.workload.expression import Axis, RaggedRange, Read, Scattering, Stage, Var, substitute

_TERM = "term"  # the axis over places of all rows
_ROW, _PLACE = "row of term", "place of term"  # tensors; no names in the notation


def row_blocks(lengths: NDArray[Any], room: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows, each of at most `room` places together, or of one row."""
    ends, low = np.cumsum(lengths), 0
    while low < len(lengths):
        before = ends[low - 1] if low else 0
        high = max(low + 1, int(np.searchsorted(ends, before + room, side="right")))
        yield low, high
        low = high


@dataclass(frozen=True, slots=True)
class Rows:
    """The places of some neighbouring rows, one after another."""

    row: NDArray[Any]  # of each place
    place: NDArray[Any]
    lengths: NDArray[Any]  # of the rows

    @classmethod
    def of(cls, first: int, starts: NDArray[Any], lengths: NDArray[Any]) -> Rows:
        """Rows from number `first` on, with their first places and numbers of places."""
        ends = np.cumsum(lengths)
        place = np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
        return cls(np.repeat(first + np.arange(len(lengths)), lengths), place, lengths)

    @property
    def tensors(self) -> dict[str, NDArray[Any]]:
        """What the terms read besides the tensors of their stage."""
        return {_ROW: self.row, _PLACE: self.place}

    def terms(self, stage: Stage, ragged: RaggedRange) -> Stage:
        """The terms of these rows: an axis over places, then the stage's axes but its row.

        Other axes of the reduction are reduced.
        """
        names = {ragged.row: _ROW, ragged.axis: _PLACE}
        others = tuple(axis for axis in stage.reduce_axes if axis.name != ragged.axis)
        return Stage(
            name=stage.name,
            axes=(
                Axis(name=_TERM, extent=len(self.place)),
                *(axis for axis in stage.axes if axis.name != ragged.row),
            ),
            reduce_axes=others,
            reducer=stage.reducer if others else None,
            body=substitute(
                ragged.body, {axis: Read(name, (Var(_TERM),)) for axis, name in names.items()}
            ),
            dtype=stage.accumulator,
            accumulator=stage.accumulator,
        )

    def reduced(self, terms: NDArray[Any], combine: np.ufunc, empty: NDArray[Any]) -> NDArray[Any]:
        """The terms reduced row by row; `empty` for rows without places."""
        result = np.full((len(self.lengths), *terms.shape[1:]), empty, terms.dtype)
        filled = self.lengths > 0
        if filled.any():
            starts = (np.cumsum(self.lengths) - self.lengths)[filled]
            result[filled] = combine.reduceat(terms, starts, axis=0)
        return result


def scattered_terms(stage: Stage, scattered: Scattering) -> Stage:
    """The terms of a scattered reduction: its own axes, then the stage's but the row."""
    kept = tuple(axis for axis in stage.axes if axis.name != scattered.row)
    return Stage(
        name=stage.name,
        axes=(*stage.reduce_axes, *kept),
        body=scattered.body,
        dtype=stage.accumulator,
    )
