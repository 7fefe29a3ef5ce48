"""Runs a library with switches in a confined process: the errors of choices of numerics.

The process is `python -m tuner.models.executors.switching`. The library holds the strict and the
fast kernel of each node that has both, so each choice costs one call and no compilation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tuner.models.arrays import Array, aligned_copy, arrays_from, arrays_to, plain_values
from tuner.models.errors import ModelRefused
from tuner.models.process import ConfinedRequest, answer_of, serve
from tuner.models.reference.accuracy import greatest_error
from tuner.runtime.loader import DTypeError, Library, LibraryError, aligned_empty
from tuner.runtime.signature import ShapeError


def switched_errors(
    path: Path,
    symbol: str,
    switches: Sequence[Sequence[bool]],
    inputs: Sequence[Sequence[Array]],
    expected: Sequence[Sequence[Array]],
    cores: Sequence[int],
) -> tuple[float, ...]:
    """For each setting of the switches the greatest error over several sets of inputs.

    `inputs` and `expected` have a list of arrays for each set, `expected` in float64. The
    library is profiled: its last output is left out. Raises ModelRefused where a call
    fails.
    """
    request = {"library": str(path), "symbol": symbol, "cores": list(cores), "sets": len(inputs)}
    arrays: list[Array] = [np.array(switches, np.uint8)]
    for given, right in zip(inputs, expected, strict=True):
        arrays += [*given, *(output.astype(np.float64) for output in right)]
    (errors,) = arrays_from(
        answer_of("tuner.models.executors.switching", request, arrays_to(arrays))
    )
    return tuple(float(error) for error in errors)


def _answer(request: ConfinedRequest, payload: memoryview) -> bytes:
    """One array: the error of each setting of the switches."""
    library, symbol = Library(request["library"]), request["symbol"]
    signature = library.signature(symbol)
    switches, *arrays = arrays_from(payload)
    results = [aligned_empty(out.shape, out.numpy_dtype) for out in signature.outputs]
    count = len(signature.inputs) - 1
    size = count + len(results) - 1
    errors = np.zeros(len(switches))
    for number in range(request["sets"]):
        part = arrays[number * size : (number + 1) * size]
        given = [aligned_copy(array) for array in part[:count]]
        for setting, row in enumerate(switches):
            try:
                library.call(symbol, [*given, aligned_copy(row), *results])
            except (LibraryError, ShapeError, DTypeError) as error:
                raise ModelRefused(f"{symbol} failed: {error}") from error
            outputs = [
                plain_values(array, out.dtype)
                for array, out in zip(results[:-1], signature.outputs[:-1], strict=True)
            ]
            errors[setting] = max(errors[setting], greatest_error(outputs, part[count:]))
    return arrays_to([errors])


if __name__ == "__main__":
    serve(_answer, lambda request: [request["library"]])
