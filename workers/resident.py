"""Workloads that stay prepared on a lane: a runner process for each of the last few, so that changing jobs costs no preparation.

A process that does not measure waits for a message and takes no time of the lane's cores; its memory is what is bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

import psutil

from tuner.errors import TunerError
from tuner.measure.assignment import Assignment
from tuner.measure.runner import RunnerProcess

MOST = 8  # processes of one lane; each takes some 60 MB beside its inputs and reference
MOST_BYTES = 2 << 30  # of all of them but the one in use


class Residents:
    """The runner processes of one lane. Not thread-safe."""

    def __init__(
        self,
        first: RunnerProcess,
        *,
        make: Callable[[], RunnerProcess] = RunnerProcess,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """`first` takes the first workload; it may be started already."""
        self._spare: RunnerProcess | None = first
        self._make, self._most, self._most_bytes = make, most, most_bytes
        self._processes: OrderedDict[str, RunnerProcess] = OrderedDict()  # by workload, the last used one at the end

    @property
    def keys(self) -> tuple[str, ...]:
        """What is prepared, the last used one at the end."""
        return tuple(self._processes)

    def prepared(self, key: str, assignment: Assignment) -> RunnerProcess:
        """The process that holds the workload of this key; those unused for longest make room for a new one.

        Raises UsageError and RunnerError as `RunnerProcess.prepare` does; the workload is not held then.
        """
        process = self._processes.get(key)
        if process is None:
            process, self._spare = self._spare or self._make(), None
            try:
                process.prepare(assignment)
            except TunerError:
                self._spare = process
                raise
            self._processes[key] = process
            self._evict()
        self._processes.move_to_end(key)
        return process

    def close(self) -> None:
        """Ends all of them; idempotent."""
        for process in (*self._processes.values(), *([self._spare] if self._spare else [])):
            process.close()
        self._processes.clear()

    def _evict(self) -> None:
        while len(self._processes) > 1 and self._too_much():
            _, process = self._processes.popitem(last=False)
            process.close()

    def _too_much(self) -> bool:
        *others, _ = self._processes.values()
        return len(self._processes) > self._most or sum(map(resident_bytes, others)) > self._most_bytes


def resident_bytes(process: RunnerProcess) -> int:
    """Memory of a runner process; 0 where it has gone."""
    if process.pid is not None:
        with suppress(psutil.NoSuchProcess):
            return int(psutil.Process(process.pid).memory_info().rss)
    return 0
