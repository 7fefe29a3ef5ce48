"""Calls of a model's libraries on a device, by its agent.

Libraries and tensors travel once as long as the agent lives. What a lost device was doing
is done again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from tuner.measure.device.connection import Connection, DeviceError
from tuner.measure.device.function import DeviceFunction, FunctionFailed, function_on
from tuner.measure.device.protocol import MAX_BLOB, MAX_CASES, MAX_TENSORS
from tuner.measure.device.runner import DeviceRunner
from tuner.models.arrays import Array, bits, plain_values
from tuner.models.errors import ModelRefused
from tuner.models.executors.checking import Checked, sampled
from tuner.models.executors.profile import LEAST_CALLS, LONGEST_S, MOST_CALLS, Spent, median_spent
from tuner.models.graph import Graph
from tuner.models.reference.accuracy import greatest_error

ATTEMPTS = 3
# Beside those of the model: its switches, or the times of its nodes.
MOST_ARGUMENTS = MAX_TENSORS - 1

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class DeviceCalls:
    """`LibraryCalls` on some cores of a device."""

    runner: DeviceRunner
    cores: int

    def refuse(self, graph: Graph) -> None:
        """Refuses what the agent's protocol has no room for."""
        count = len(graph.inputs), len(graph.outputs)
        if max(count) > MOST_ARGUMENTS:
            raise ModelRefused(
                f"the model has {count[0]} inputs and {count[1]} outputs; on a device it may have "
                f"{MOST_ARGUMENTS} of each"
            )
        tensors = [*graph.inputs, *(graph.tensor(name) for name in graph.outputs)]
        largest = max((tensor.nbytes for tensor in tensors), default=0)
        if largest > MAX_BLOB or graph.nbytes > MAX_BLOB:
            raise ModelRefused(
                f"the model has tensors of {largest} bytes and {graph.nbytes} bytes of constants; "
                f"a device takes {MAX_BLOB} bytes of a tensor or a library"
            )

    def run(self, library: Path, symbol: str, inputs: Sequence[Array]) -> Checked:
        def work(function: DeviceFunction) -> Checked:
            function.call()
            function.check_surroundings()
            outputs = _outputs(function)
            return Checked(outputs=outputs, samples_s=tuple(sampled(function.seconds)))

        return self._on_device(library, symbol, [inputs], work)

    def spent(
        self,
        library: Path,
        symbol: str,
        inputs: Sequence[Array],
        settings: Sequence[Sequence[int]] | None = None,
        *,
        threads: int = 0,
        longest_s: float = LONGEST_S,
    ) -> Sequence[Spent]:
        switched = settings is not None
        sets = [
            [*inputs, *([np.array(row, np.uint8)] if switched else [])] for row in settings or [[]]
        ]

        def work(function: DeviceFunction) -> list[Spent]:
            rows: list[list[Array]] = [[] for _ in range(function.cases)]
            ends = time.monotonic() + longest_s
            while len(rows[0]) < LEAST_CALLS or (
                len(rows[0]) < MOST_CALLS and time.monotonic() < ends
            ):
                for case, row in enumerate(rows):
                    function.call(case, 2 if switched else 1)
                    row.append(function.output(-1))
            return [median_spent(row) for row in rows]

        return self._in_parts(library, symbol, sets, work, threads)

    def errors(
        self,
        library: Path,
        symbol: str,
        switches: Sequence[Sequence[bool]],
        inputs: Sequence[Sequence[Array]],
        expected: Sequence[Sequence[Array]],
    ) -> Sequence[float]:
        errors = np.zeros(len(switches))
        for arrays, right in zip(inputs, expected, strict=True):
            sets = [[*arrays, np.array(row, np.uint8)] for row in switches]

            def work(function: DeviceFunction, right: Sequence[Array] = right) -> list[float]:
                worst = []
                for case in range(function.cases):
                    function.call(case)
                    worst.append(greatest_error(_outputs(function)[:-1], right))
                return worst

            errors = np.maximum(errors, self._in_parts(library, symbol, sets, work))
        return [float(error) for error in errors]

    def packed(self, library: Path, symbol: str, constants: Sequence[Array]) -> list[Array]:
        """By the library's own function, which is code of the device."""

        def work(function: DeviceFunction) -> list[Array]:
            function.call()
            return [function.output(place) for place in range(len(function.signature.outputs))]

        return self._on_device(library, symbol, [constants], work)

    def _in_parts(
        self,
        library: Path,
        symbol: str,
        sets: Sequence[Sequence[Array]],
        work: Callable[[DeviceFunction], list[Result]],
        threads: int = 0,
    ) -> list[Result]:
        """The results for all sets of inputs, of which the agent takes a few at a time."""
        results: list[Result] = []
        for start in range(0, len(sets), MAX_CASES):
            part = sets[start : start + MAX_CASES]
            results += self._on_device(library, symbol, part, work, threads)
        return results

    def _on_device(
        self,
        library: Path,
        symbol: str,
        sets: Sequence[Sequence[Array]],
        work: Callable[[DeviceFunction], Result],
        threads: int = 0,
    ) -> Result:
        """What `work` gives. A device that is lost is waited for, and it is done again."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._worked(self.runner.reached(), library, symbol, sets, work, threads)
            except FunctionFailed as error:
                raise ModelRefused(f"{symbol} failed on the device: {error}") from error
            except DeviceError:
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _worked(
        self,
        connection: Connection,
        library: Path,
        symbol: str,
        sets: Sequence[Sequence[Array]],
        work: Callable[[DeviceFunction], Result],
        threads: int,
    ) -> Result:
        plain = [[bits(array) for array in arrays] for arrays in sets]
        content = library.read_bytes()
        with function_on(
            connection, content, symbol, plain, threads=threads, cores=self.cores
        ) as function:
            return work(function)


def _outputs(function: DeviceFunction) -> tuple[Array, ...]:
    """All outputs of the last call, in their dtypes."""
    return tuple(
        plain_values(function.output(place), argument.dtype)
        for place, argument in enumerate(function.signature.outputs)
    )
