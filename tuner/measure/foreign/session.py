"""The judge's side of a guest: rounds of calls, timed by the judge's own clock.

Judge and guest take turns on one core, so that what the judge wrote lies in the caches
that the kernel reads from, as it does when a kernel is called over and over. Between two
rounds the guest is stopped: it sees no inputs before its time begins, and changes nothing
after it has ended.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

from tuner.measure.assignment import Placement
from tuner.measure.foreign import arena as words
from tuner.measure.foreign.arena import Arena
from tuner.measure.foreign.guest import OUT_OF_BOUNDS, Invitation
from tuner.measure.foreign.verdict import Guilty, VerdictName
from tuner.measure.outcome import Failed, FailureKind
from tuner.measure.runner import RunnerProcess

LOOK_S = 0.05  # between two looks at whether a guest that does not answer has ended
_FUTEX = {"x86_64": 202, "aarch64": 98}
_WAIT, _WAKE = 0, 1

_VERDICTS = {
    FailureKind.RUN_TIMEOUT: VerdictName.TIMED_OUT,
    FailureKind.OUT_OF_MEMORY: VerdictName.OUT_OF_MEMORY,
    FailureKind.INFRASTRUCTURE: VerdictName.INFRASTRUCTURE,
}


class Session:
    """One guest. Used by one thread, on the guest's first core."""

    def __init__(
        self,
        process: RunnerProcess,
        placement: Placement,
        invitation: Invitation,
        arena: Arena,
    ) -> None:
        self._arena = arena
        self._failure: Failed | None = None
        self._error: Exception | None = None
        self._ended = threading.Event()
        self._round = words.READY
        self._pid = 0  # of the guest, once it is there
        self._process, self._placement, self._invitation = process, placement, invitation
        self._thread = threading.Thread(target=self._host, name="guest", daemon=True)

    def play(self, count: int) -> float:
        """Seconds that the guest took for calls on the first `count` slots.

        Raises Guilty when it did not get that far, or left other floating-point modes.
        """
        arena = self._arena
        self._round += 1
        arena.set_word(words.COUNT, count)
        begun_s = perf_counter()
        self._go(self._round)
        self._wait(self._round)
        self._signal(signal.SIGSTOP)  # so that nothing is computed after its time
        elapsed_s = perf_counter() - begun_s
        self._stop()
        status = arena.word(words.STATUS)
        if status != 0:
            raise Guilty(
                VerdictName.RETURNED_ERROR,
                f"the kernel returned {ctypes.c_int32(status).value}; 0 says that it is done",
            )
        if arena.word(words.STATE_CHANGED):
            raise Guilty(
                VerdictName.FLOATING_POINT_STATE,
                "the kernel left other floating-point modes than it came upon: rounding, "
                "subnormal numbers taken as zero, or exceptions",
            )
        return elapsed_s

    def _host(self) -> None:
        try:
            self._failure = self._process.host(self._placement, self._invitation)
        except Exception as error:
            self._error = error
        finally:
            self._ended.set()

    def _wait(self, round_number: int) -> None:
        """Wait until the guest has played the round. Raises Guilty when it has ended instead."""
        arena = self._arena
        while (done := arena.word(words.DONE)) != round_number:
            if self._ended.is_set() and arena.word(words.DONE) != round_number:
                raise self._end()
            _futex(arena.address + words.DONE, _WAIT, done)

    def _end(self) -> Exception:
        """Why the guest has ended before it was to."""
        if self._error is not None:
            return self._error
        if self._failure is None:
            return Guilty(VerdictName.ENDED_EARLY, "the kernel ended its process")
        return Guilty(verdict_name(self._failure), self._failure.message)

    def begin(self) -> None:
        """Start the guest and wait until it is ready. Raises Guilty when it does not come."""
        for word in (words.GO, words.DONE, words.COUNT, words.STATUS, words.STATE_CHANGED):
            self._arena.set_word(word, 0)
        self._thread.start()
        self._wait(words.READY)
        self._pid = self._number()
        self._stop()

    def close(self) -> None:
        """End the guest, as far as it still is there, and wait for its end."""
        if not self._ended.is_set():
            self._arena.set_word(words.COUNT, words.STOP)
            self._go(self._round + 1)
        self._thread.join()

    def _go(self, round_number: int) -> None:
        """Let the guest go on, with another round."""
        self._arena.set_word(words.GO, round_number)
        if self._pid:
            self._signal(signal.SIGCONT)
        _futex(self._arena.address + words.GO, _WAKE, 1)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, number)

    def _stop(self) -> None:
        """Stop the guest, and wait until it is. Raises Guilty when it has ended instead."""
        stat = f"/proc/{self._pid}/stat"
        try:
            os.kill(self._pid, signal.SIGSTOP)
            while Path(stat).read_text("ascii", "replace").rpartition(")")[2].split()[0] != "T":
                if self._ended.is_set():
                    break
                os.sched_yield()
        except (ProcessLookupError, FileNotFoundError):
            self._ended.wait()
        if self._ended.is_set():
            raise self._end()

    def _number(self) -> int:
        """The guest's process number, which the runner wrote when it started it.

        Raises Guilty when the guest has ended instead.
        """
        while True:
            text = Path(self._invitation.number).read_text("ascii")
            if text.endswith("\n"):
                return int(text)
            if self._ended.is_set():
                raise self._end()
            time.sleep(0.001)


def verdict_name(failure: Failed) -> VerdictName:
    """The verdict on a guest that was ended, or that ended by itself."""
    message = failure.message
    if failure.kind in _VERDICTS:
        return _VERDICTS[failure.kind]
    if failure.kind is FailureKind.WRONG_ANSWER:
        outside = message.startswith(OUT_OF_BOUNDS)
        return VerdictName.OUT_OF_BOUNDS if outside else VerdictName.INPUT_CHANGED
    if "isolation refuses" in message:
        return VerdictName.SYSTEM_CALL
    return VerdictName.ENDED_EARLY if "exit code" in message else VerdictName.CRASHED


@contextmanager
def session(
    process: RunnerProcess, placement: Placement, invitation: Invitation, arena: Arena
) -> Iterator[Session]:
    """A guest that is ready. This thread keeps to its core meanwhile."""
    before = os.sched_getaffinity(0)
    guest = Session(process, placement, invitation, arena)
    os.sched_setaffinity(0, placement.lane.cores[:1])
    try:
        guest.begin()
        yield guest
    finally:
        guest.close()
        os.sched_setaffinity(0, before)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_PAUSE = _Timespec(0, int(LOOK_S * 1e9))


def _futex(address: int, operation: int, value: int) -> None:
    """futex(2) on a word of the arena; waiting ends after LOOK_S at the latest."""
    libc: Any = ctypes.CDLL(None)
    libc.syscall(
        ctypes.c_long(_FUTEX[platform.machine()]),
        ctypes.c_void_p(address),
        ctypes.c_int(operation),
        ctypes.c_uint32(value),
        ctypes.byref(_PAUSE),
        None,
        0,
    )
