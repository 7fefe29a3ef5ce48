"""Runs a model's library in a confined process: its outputs and the time of a call.

The process is `python -m tuner.models.executors.checking`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.models.arrays import Array, aligned_copy, arrays_from, arrays_to, plain_values
from tuner.models.errors import ModelRefused
from tuner.models.process import ConfinedRequest, answer_of, serve
from tuner.runtime.loader import DTypeError, Library, LibraryError, aligned_empty
from tuner.runtime.signature import ShapeError

SAMPLES = 31  # timed
SAMPLE_S = 5e-3  # seconds of one sample, at least
LONGEST_S = 3.0  # of all samples, where as few as `LEAST` take no longer
LEAST = 3


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What a library computed in one call, and how long calls took."""

    outputs: tuple[Array, ...]
    samples_s: tuple[float, ...]  # mean seconds of a call, with warm caches

    @property
    def median_s(self) -> float:
        """Seconds of a call, the median of the samples."""
        return float(np.median(self.samples_s))

    @property
    def ci95_s(self) -> tuple[float, float]:
        """A 95% confidence interval of the median, in seconds.

        From the quartiles, by McGill, Tukey and Larsen, "Variations of Box Plots", 1978.
        """
        quartiles = np.percentile(self.samples_s, [25, 75])
        half = 1.57 * float(quartiles[1] - quartiles[0]) / len(self.samples_s) ** 0.5
        return self.median_s - half, self.median_s + half


def run_library(path: Path, symbol: str, inputs: Sequence[Array], cores: Sequence[int]) -> Checked:
    """Calls a function of a shared library in a confined process on the given cores.

    Raises ModelRefused where the call fails.
    """
    request = {"library": str(path), "symbol": symbol, "cores": list(cores)}
    *outputs, samples = arrays_from(
        answer_of("tuner.models.executors.checking", request, arrays_to(inputs))
    )
    return Checked(outputs=tuple(outputs), samples_s=tuple(float(seconds) for seconds in samples))


def sampled(seconds: Callable[[int, int], Sequence[float]]) -> Sequence[float]:
    """Samples of a call. `seconds(number, repeat)` gives so many of so many calls each."""
    once = max(min(seconds(1, LEAST)), 1e-9)
    calls = max(1, round(SAMPLE_S / once))
    return seconds(calls, min(max(int(LONGEST_S / (calls * once)), LEAST), SAMPLES))


def _answer(request: ConfinedRequest, payload: memoryview) -> bytes:
    """The outputs of a call on the payload's arrays, then the samples."""
    library, symbol = Library(request["library"]), request["symbol"]
    function = library.function(symbol)
    inputs = arrays_from(payload)
    written = [
        aligned_empty(argument.shape, argument.numpy_dtype)
        for argument in function.signature.of(inputs).outputs
    ]
    try:
        result = function(*inputs, out=written)
    except (LibraryError, ShapeError, DTypeError) as error:
        raise ModelRefused(f"{symbol} failed: {error}") from error
    outputs = [result] if isinstance(result, np.ndarray) else list(result)
    arrays = [aligned_copy(array) for array in (*inputs, *outputs)]
    samples = sampled(lambda number, repeat: library.time(symbol, arrays, number, repeat))
    values = [
        plain_values(array, out.dtype)
        for array, out in zip(outputs, library.signature(symbol).outputs, strict=True)
    ]
    return arrays_to([*values, np.array(samples)])


if __name__ == "__main__":
    serve(_answer, lambda request: [request["library"]])
