"""What runs a model's library to see what it computes and how long it takes: `python -m
tuner.models.checking`, confined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.models.arrays import Array, arrays_from, arrays_to
from tuner.models.errors import ModelRefused
from tuner.models.process import Asked, answer_of, serve
from tuner.runtime.loader import DTypeError, Library, LibraryError, ShapeError, aligned_empty

SAMPLES = 31  # of the time
SAMPLE_S = 5e-3  # how long one takes, at least


@dataclass(frozen=True, kw_only=True)
class Checked:
    outputs: tuple[Array, ...]  # of one call
    samples_s: tuple[float, ...]  # mean seconds of a call, warm

    @property
    def median_s(self) -> float:
        return float(np.median(self.samples_s))

    @property
    def ci95_s(self) -> tuple[float, float]:
        """Of the median, by the quartiles: McGill, Tukey and Larsen, "Variations of Box
        Plots", 1978."""
        quartiles = np.percentile(self.samples_s, [25, 75])
        half = 1.57 * float(quartiles[1] - quartiles[0]) / len(self.samples_s) ** 0.5
        return self.median_s - half, self.median_s + half


def run_library(path: Path, symbol: str, inputs: Sequence[Array], cores: Sequence[int]) -> Checked:
    """Calls the function of a shared library in a confined process on the given cores.
    Raises ModelRefused where it fails."""
    asked = {"library": str(path), "symbol": symbol, "cores": list(cores)}
    *outputs, samples = arrays_from(answer_of("tuner.models.checking", asked, arrays_to(inputs)))
    return Checked(outputs=tuple(outputs), samples_s=tuple(float(one) for one in samples))


def _answer(asked: Asked, given: bytes) -> bytes:
    library, symbol = Library(asked["library"]), asked["symbol"]
    function = library.function(symbol)
    inputs = arrays_from(given)
    try:
        found = function(*inputs)
    except (LibraryError, ShapeError, DTypeError) as error:
        raise ModelRefused(f"{symbol} failed: {error}") from error
    outputs = [found] if isinstance(found, np.ndarray) else list(found)
    arrays = []
    for array in (*inputs, *outputs):
        place = aligned_empty(array.shape, array.dtype)
        place[...] = array
        arrays.append(place)
    once = min(library.time(symbol, arrays, 1, 3))
    samples = library.time(symbol, arrays, max(1, round(SAMPLE_S / max(once, 1e-9))), SAMPLES)
    return arrays_to([*outputs, np.array(samples)])


if __name__ == "__main__":
    serve(_answer, lambda asked: [asked["library"]])
