"""Runs the kernels of `probes` in the process that owns a device, and says how long each
took.

Nothing is compared here with what it means: that is `limits`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import ceil
from typing import Any

import numpy as np

from tuner.measure.gpu.probes import (
    ARITHMETIC_BLOCKS,
    CONTROL,
    THREADS,
    VECTOR_BYTES,
)
from tuner.measure.wire import Document
from tuner.runtime.cuda_driver import Device
from tuner.runtime.cuda_loader import CudaLibrary

LAUNCH_S = 1e-3  # of one timed launch: long beside the clock and the launch itself
SAMPLES = 5
LAUNCHES = 1000  # of an empty kernel in a graph
WARM_S = 0.3  # of the host's time, in which an idle device reaches its clocks
# A launch that the host waits for this long is as long as it gets: no device takes this
# long for a launch of LAUNCH_S.
PATIENCE_S = 0.03
CHECKED_ROUNDS = 2
GROWTH = 8  # of the rounds from one launch to the next, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbingTask:
    """What the process is asked to run."""

    library: str  # path of the linked kernels
    rates: Mapping[str, int]  # the word of ones that each kernel of arithmetic reads
    set_bytes: tuple[int, ...]  # working sets, growing
    multiprocessors: int


def task_to_document(task: ProbingTask) -> Document:
    return asdict(task)


def task_from_document(document: Document) -> ProbingTask:
    return ProbingTask(**{**document, "set_bytes": tuple(document["set_bytes"])})


class Probing:
    """A device with the buffers that the kernels use."""

    def __init__(self, ordinal: int, task: ProbingTask) -> None:
        """Raises NoDriver and CudaError."""
        self._device, self._task = Device(ordinal), task
        self._library = CudaLibrary(task.library)
        self._sums = task.multiprocessors * ARITHMETIC_BLOCKS * THREADS
        allocate = self._device.allocate
        self._control, self._ones = allocate(8 * CONTROL), allocate(4)
        self._results = allocate(4 * self._sums)
        self._from, self._to = (allocate(task.set_bytes[-1]) for _ in range(2))

    def run(self, stage: Callable[[str], None]) -> Document:
        """Seconds of each kernel's launches, with the rounds that one of them makes."""
        stage("warming up")
        self._warm()
        stage("timing launches")
        launch_s = self._launches()
        memory = []
        for nbytes in self._task.set_bytes:
            stage(f"moving {nbytes} bytes")
            memory.append({"set_bytes": nbytes, **self._traffic(nbytes // VECTOR_BYTES)})
        stage("reading shared memory")
        shared = self._timed("shared_read", (self._control, self._results))
        rates = {}
        for symbol, word in self._task.rates.items():
            stage(f"timing {symbol}")
            rates[symbol] = self._rate(symbol, word)
        return {"launch_s": launch_s, "memory": memory, "shared": shared, "rates": rates}

    def _warm(self) -> None:
        symbol, word = next(iter(self._task.rates.items()))
        deadline = time.monotonic() + WARM_S
        while time.monotonic() < deadline:
            self._rate(symbol, word)

    def _launches(self) -> Sequence[float]:
        self._set(1)
        call = partial(
            self._library.function("launched").launch, (self._control,), self._device.stream
        )
        call()
        graph = self._device.captured(call, LAUNCHES)
        try:
            graph.launch()
            self._device.wait()
            return [self._device.seconds(graph.launch) / LAUNCHES for _ in range(SAMPLES)]
        finally:
            graph.close()

    def _traffic(self, vectors: int) -> Mapping[str, Any]:
        """Writing comes first: what is read and copied then are bits of all kinds."""
        half = vectors // 2
        buffers = {
            "write": (self._control, self._from),
            "read": (self._control, self._from, self._results),
            "copy": (self._control, self._from, self._to),
        }
        return {
            name: self._timed(
                f"memory_{name}", addresses, vectors=half if name == "copy" else vectors
            )
            for name, addresses in buffers.items()
        }

    def _rate(self, symbol: str, word: int) -> Mapping[str, Any]:
        """Its times, and the smallest and the largest sum after CHECKED_ROUNDS."""
        self._device.upload(self._ones, np.array([word], np.uint32))
        addresses = (self._control, self._ones, self._results)
        timed = self._timed(symbol, addresses)
        self._set(CHECKED_ROUNDS)
        self._library.function(symbol).launch(addresses, self._device.stream)
        sums = self._device.download(self._results, (self._sums,), np.float32)
        return {**timed, "least": float(sums.min()), "most": float(sums.max())}

    def _timed(
        self, symbol: str, addresses: Sequence[int], *, vectors: int = 0
    ) -> Mapping[str, Any]:
        """Seconds of launches of LAUNCH_S, and their rounds."""
        call = partial(self._library.function(symbol).launch, addresses, self._device.stream)
        rounds, waits, count = 1, 0, SAMPLES
        while True:
            self._set(rounds, vectors)
            began = time.monotonic()
            seconds = self._device.seconds(call)
            if seconds >= LAUNCH_S:
                break
            if time.monotonic() - began > PATIENCE_S:
                waits += 1
                if waits > 1:
                    count = 1  # a device of software
                    break
                # The first launch also loads the code, and what disturbs the host passes.
                continue
            enough = ceil(1.2 * rounds * LAUNCH_S / max(seconds, 1e-9))
            rounds = min(GROWTH * rounds, max(rounds + 1, enough))
        samples = [self._device.seconds(call) for _ in range(count)]
        return {"samples_s": samples, "rounds": rounds}

    def _set(self, rounds: int, vectors: int = 0) -> None:
        # A third of the set on, other multiprocessors read what these have read.
        control = np.array([rounds, vectors, vectors // 3], np.int64)
        self._device.upload(self._control, control)
