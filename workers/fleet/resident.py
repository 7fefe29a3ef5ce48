"""Workloads that stay prepared on a lane, each in a runner process of its own.

Changing between jobs therefore needs no preparation. A new job's workload is prefetched
on a builder's cores while the lane times another one. An idle process waits for a message
and takes no time of the lane's cores; the memory of all of them is limited.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psutil

from tuner.errors import TunerError
from tuner.measure.assignment import Assignment
from tuner.measure.runner import RunnerProcess

MOST = 8  # processes of one lane; each takes some 60 MB beside its inputs and reference
MOST_BYTES = 2 << 30  # of all of them but the one in use


@dataclass(slots=True, eq=False)
class _Resident:
    """A runner process and its workload; `over` is set once preparing has ended."""

    process: RunnerProcess
    over: threading.Event = field(default_factory=threading.Event)
    failed: bool = False


class Residents:
    """The runner processes of one lane.

    One thread measures with the process that `prepared` returns; others may `prefetch`
    workloads.
    """

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
        self._make = make
        self._most = most
        self._most_bytes = most_bytes
        self._lock = threading.Lock()  # guards the fields; held only for short operations
        # by workload, the last used one at the end
        self._residents: OrderedDict[str, _Resident] = OrderedDict()
        self._current: str | None = None  # the one in use

    @property
    def keys(self) -> tuple[str, ...]:
        """Workloads that are prepared or being prepared, the last used one at the end."""
        with self._lock:
            return tuple(self._residents)

    def holds(self, key: str) -> bool:
        """Whether this workload is prepared."""
        with self._lock:
            resident = self._residents.get(key)
            return resident is not None and resident.over.is_set() and not resident.failed

    def prefetch(self, key: str, assignment: Assignment, cores: Sequence[int]) -> None:
        """Prepares a workload on these cores, while the lane may time another one.

        A workload that cannot be prepared is dropped: `prepared` then gives the reason.
        """
        resident, missing = self._entered(key)
        if missing:
            with suppress(TunerError):
                self._prepare(key, resident, assignment, cores)

    def prepared(self, key: str, assignment: Assignment) -> RunnerProcess:
        """The process that holds the workload of this key, prepared if necessary.

        The least recently used processes make room for a new one. Raises UsageError and
        RunnerError as `RunnerProcess.prepare` does; the workload is then dropped.
        """
        with self._lock:
            self._current = key
        resident, missing = self._entered(key)
        if not missing:
            resident.over.wait()
            missing = resident.failed
            if missing:
                resident, _ = self._entered(key)
        if missing:
            self._prepare(key, resident, assignment, ())
        with self._lock:
            self._residents.move_to_end(key)
        return resident.process

    @contextmanager
    def at_hand(self) -> Iterator[RunnerProcess | None]:
        """A process for requests that need no workload, for the thread that measures.

        None if the only process is being prepared.
        """
        with self._lock:
            ready = [key for key, resident in self._residents.items() if resident.over.is_set()]
            if self._current not in ready and ready:
                self._current = ready[-1]  # which protects it from eviction
            current = self._residents[self._current] if self._current in ready else None
            borrowed, self._spare = (None, self._spare) if current else (self._spare, None)
        try:
            yield current.process if current else borrowed
        finally:
            if borrowed is not None:
                self._give_back(borrowed)

    def close(self) -> None:
        """Ends all of them; idempotent."""
        with self._lock:
            processes = [resident.process for resident in self._residents.values()] + (
                [self._spare] if self._spare else []
            )
            self._residents.clear()
            self._current = None
        for process in processes:
            process.close()

    def _entered(self, key: str) -> tuple[_Resident, bool]:
        """The workload's entry, and whether it is new; the caller then prepares it."""
        with self._lock:
            resident = self._residents.get(key)
            if resident is not None:
                return resident, False
            process, self._spare = self._spare or self._released() or self._make(), None
            resident = self._residents[key] = _Resident(process)
            return resident, True

    def _released(self) -> RunnerProcess | None:
        """The longest unused process, where there are as many as there may be.

        It takes another workload without the start of a process.
        """
        idle = self._idle()
        if len(self._residents) < self._most or not idle:
            return None
        return self._residents.pop(idle[0]).process

    def _idle(self, newest: str = "") -> list[str]:
        """Workloads that nobody uses, the longest unused first."""
        return [
            key
            for key, resident in self._residents.items()
            if key not in (newest, self._current) and resident.over.is_set()
        ]

    def _prepare(
        self, key: str, resident: _Resident, assignment: Assignment, cores: Sequence[int]
    ) -> None:
        try:
            resident.process.prepare(assignment, cores=cores)
        except TunerError:
            resident.failed = True
            with self._lock:
                self._residents.pop(key, None)
            self._give_back(resident.process)
            raise
        finally:
            resident.over.set()
        self._evict(key)

    def _give_back(self, process: RunnerProcess) -> None:
        with self._lock:
            spare, self._spare = self._spare, self._spare or process
        if spare is not None:
            process.close()

    def _evict(self, newest: str) -> None:
        """Ends idle processes, the least recently used first, until the rest fits."""
        while True:
            with self._lock:
                idle = self._idle(newest)
                if not idle or not self._too_much(newest):
                    return
                resident = self._residents.pop(idle[0])
            resident.process.close()

    def _too_much(self, newest: str) -> bool:
        others = sum(
            resident_bytes(resident.process)
            for key, resident in self._residents.items()
            if key != newest
        )
        return len(self._residents) > self._most or others > self._most_bytes


def resident_bytes(process: RunnerProcess) -> int:
    """Memory of a runner process; 0 where it has gone."""
    if process.pid is not None:
        with suppress(psutil.NoSuchProcess):
            return int(psutil.Process(process.pid).memory_info().rss)
    return 0
