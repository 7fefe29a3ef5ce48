"""Runs a profiled library in a confined process: the time of each kernel of a model.

The process is `python -m tuner.models.executors.profile`. Within its model a kernel finds its
inputs where the kernel before left them, and its constants compete for the caches with
those of all the others. So it may take longer than it did by itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.models.arrays import Array, aligned_copy, arrays_from, arrays_to
from tuner.models.errors import ModelRefused
from tuner.models.process import ConfinedRequest, answer_of, serve
from tuner.runtime.loader import DTypeError, Library, LibraryError, aligned_empty
from tuner.runtime.signature import ShapeError

LONGEST_S = 2.0  # of calls, once there are the least number of them
LEAST_CALLS, MOST_CALLS = 5, 201


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Median seconds of a call of a profiled library under one setting of its switches."""

    steps: tuple[float, ...]
    whole_s: float  # of all steps of a call together


def spent_seconds(
    path: Path,
    symbol: str,
    inputs: Sequence[Array],
    settings: Sequence[Sequence[int]] | None,
    cores: Sequence[int],
    longest_s: float = LONGEST_S,
    threads: int = 0,
) -> tuple[Spent, ...]:
    """What calls take on these cores under each setting of the library's switches, in turn.

    Once where it has none, and `settings` is None. The call that is timed comes after
    another of the same setting, as in a program that uses the model with these kernels
    alone. Kernels use `threads`, or as many as they were tuned for if that is 0. Raises
    ModelRefused where a call fails.
    """
    request = {
        "library": str(path),
        "symbol": symbol,
        "cores": list(cores),
        "switched": settings is not None,
        "longest_s": longest_s,
        "threads": threads,
    }
    arrays = [*inputs] if settings is None else [*inputs, np.array(settings, np.uint8)]
    (medians,) = arrays_from(
        answer_of("tuner.models.executors.profile", request, arrays_to(arrays))
    )
    return tuple(_spent(row) for row in medians)


def median_spent(samples: Sequence[Array]) -> Spent:
    """The medians of the last outputs of calls: the nanoseconds of each step."""
    return _spent(_medians(samples))


def _medians(samples: Sequence[Array]) -> Array:
    """The median seconds of each step, and of all."""
    rows = np.stack(samples)
    return np.array([*np.median(rows, axis=0), np.median(rows.sum(axis=1))]) / 1e9


def _spent(medians: Array) -> Spent:
    return Spent(steps=tuple(map(float, medians[:-1])), whole_s=float(medians[-1]))


def _answer(request: ConfinedRequest, payload: memoryview) -> bytes:
    """One array with a row for each setting: the median seconds of each step, and of all."""
    library, symbol = Library(request["library"]), request["symbol"]
    library.set_num_threads(request["threads"])
    given = arrays_from(payload)
    settings = given.pop() if request["switched"] else None
    arrays = [aligned_copy(array) for array in given]
    results = [
        aligned_empty(output.shape, output.numpy_dtype)
        for output in library.signature(symbol).outputs
    ]
    calls = (
        [[*arrays, *results]]
        if settings is None
        else [[*arrays, aligned_copy(row), *results] for row in settings]
    )
    rows: list[list[Array]] = [[] for _ in calls]
    ends = time.monotonic() + request["longest_s"]
    while len(rows[0]) < LEAST_CALLS or (len(rows[0]) < MOST_CALLS and time.monotonic() < ends):
        for arguments, spent in zip(calls, rows, strict=True):
            try:
                for _ in range(1 if settings is None else 2):
                    library.call(symbol, arguments)
            except (LibraryError, ShapeError, DTypeError) as error:
                raise ModelRefused(f"{symbol} failed: {error}") from error
            spent.append(results[-1].copy())
    return arrays_to([np.array([_medians(spent) for spent in rows])])


if __name__ == "__main__":
    serve(_answer, lambda request: [request["library"]])
