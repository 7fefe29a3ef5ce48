"""Where a model's time goes: a library that notes what each of its kernels takes, run
confined: `python -m tuner.models.profile`.

A kernel within its model finds its inputs where the one before left them and its
constants behind those of all the others, so it may take longer than it did alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tuner.models.arrays import Array, arrays_from, arrays_to
from tuner.models.errors import ModelRefused
from tuner.models.process import Asked, answer_of, serve
from tuner.runtime.loader import DTypeError, Library, LibraryError, ShapeError, aligned_empty

LONGEST_S = 2.0  # of calls, once there are a few
CALLS = (5, 201)  # at least and at most


def step_seconds(
    path: Path, symbol: str, inputs: Sequence[Array], cores: Sequence[int]
) -> tuple[float, ...]:
    """Median seconds of each step in one call of a profiled library, warm, on the given
    cores. Raises ModelRefused."""
    asked = {"library": str(path), "symbol": symbol, "cores": list(cores)}
    (spent,) = arrays_from(answer_of("tuner.models.profile", asked, arrays_to(inputs)))
    return tuple(float(one) for one in spent)


def _answer(asked: Asked, given: bytes) -> bytes:
    library, symbol = Library(asked["library"]), asked["symbol"]
    arrays = [_placed(array) for array in arrays_from(given)]
    arrays += [
        aligned_empty(one.shape, one.numpy_dtype) for one in library.signature(symbol).outputs
    ]
    rows: list[Array] = []
    least, most = CALLS
    ends = time.monotonic() + LONGEST_S
    while len(rows) < least or (len(rows) < most and time.monotonic() < ends):
        try:
            library.call(symbol, arrays)
        except (LibraryError, ShapeError, DTypeError) as error:
            raise ModelRefused(f"{symbol} failed: {error}") from error
        rows.append(arrays[-1].copy())
    return arrays_to([np.median(np.stack(rows), axis=0) / 1e9])


def _placed(array: Array) -> Array:
    place = aligned_empty(array.shape, array.dtype)
    place[...] = array
    return place


if __name__ == "__main__":
    serve(_answer, lambda asked: [asked["library"]])
