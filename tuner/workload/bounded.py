"""Outputs of which a call fills only a part: extents that are computed, up to a bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedExtents:
    """The dimensions of an output along which only the first elements are there.

    How many is said by another output, int64, with a number for each of these dimensions.
    Zeros lie behind them.
    """

    axes: tuple[int, ...]  # ascending
    extents: str  # name of the other output

    @property
    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"axes": list(self.axes), "extents": self.extents}


def bounded_from(document: Any) -> BoundedExtents:
    """The inverse of `document`. Raises KeyError, TypeError or ValueError for anything else."""
    return BoundedExtents(
        axes=tuple(int(axis) for axis in document["axes"]), extents=str(document["extents"])
    )


def first(array: Array, bounded: BoundedExtents, outputs: Mapping[str, Array]) -> Array:
    """The part of an output that is there; `outputs` has its extents by name."""
    numbers = dict(zip(bounded.axes, outputs[bounded.extents].tolist(), strict=True))
    return array[
        tuple(
            slice(0, max(numbers.get(axis, extent), 0)) for axis, extent in enumerate(array.shape)
        )
    ]
