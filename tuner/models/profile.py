"""Runs a profiled library in a confined process: the time of each kernel of a model.

The process is `python -m tuner.models.profile`. Within its model a kernel finds its
inputs where the kernel before left them, and its constants compete for the caches with
those of all the others. So it may take longer than it did by itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tuner.models.arrays import Array, aligned_copy, arrays_from, arrays_to
from tuner.models.errors import ModelRefused
from tuner.models.process import ConfinedRequest, answer_of, serve
from tuner.runtime.loader import DTypeError, Library, LibraryError, ShapeError, aligned_empty

LONGEST_S = 2.0  # of calls, once there are the least number of them
LEAST_CALLS, MOST_CALLS = 5, 201


def step_seconds(
    path: Path, symbol: str, inputs: Sequence[Array], cores: Sequence[int]
) -> tuple[float, ...]:
    """Median seconds of each step of a profiled library, with warm caches, on these cores.

    Raises ModelRefused where a call fails.
    """
    request = {"library": str(path), "symbol": symbol, "cores": list(cores)}
    (spent,) = arrays_from(answer_of("tuner.models.profile", request, arrays_to(inputs)))
    return tuple(float(seconds) for seconds in spent)


def _answer(request: ConfinedRequest, payload: memoryview) -> bytes:
    """One array: the median seconds of each step."""
    library, symbol = Library(request["library"]), request["symbol"]
    arrays = [aligned_copy(array) for array in arrays_from(payload)]
    arrays += [
        aligned_empty(output.shape, output.numpy_dtype)
        for output in library.signature(symbol).outputs
    ]
    rows: list[Array] = []
    ends = time.monotonic() + LONGEST_S
    while len(rows) < LEAST_CALLS or (len(rows) < MOST_CALLS and time.monotonic() < ends):
        try:
            library.call(symbol, arrays)
        except (LibraryError, ShapeError, DTypeError) as error:
            raise ModelRefused(f"{symbol} failed: {error}") from error
        rows.append(arrays[-1].copy())
    return arrays_to([np.median(np.stack(rows), axis=0) / 1e9])


if __name__ == "__main__":
    serve(_answer, lambda request: [request["library"]])
