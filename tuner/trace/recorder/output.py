"""Where a process writes what it records: two files that need no end.

`NAME.slots` is memory shared with the file, a pair of doubles for each kind of call: how
many calls, and their nanoseconds. `NAME.lines` has a JSON document on each line that says
what a slot is of. So nothing is lost with a process that is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import sys
import threading
import time
from typing import Any

SLOTS = 1 << 14
SLOT_BYTES = 16


class Output:
    """One process's files. Thread-safe but for the slots' numbers, which the GIL guards."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._open()

    def _open(self) -> None:
        name = os.path.join(self.folder, f"{os.getpid()}-{time.monotonic_ns()}")
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        self._lines = os.open(name + ".lines", flags, 0o600)
        descriptor = os.open(name + ".slots", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        os.ftruncate(descriptor, SLOTS * SLOT_BYTES)
        self.memory = mmap.mmap(descriptor, SLOTS * SLOT_BYTES)
        os.close(descriptor)
        self._numbers = memoryview(self.memory).cast("d")
        self._next = 1  # 0 says that a call is not counted
        self.line({"process": {"pid": os.getpid(), "arguments": list(sys.argv or [])}})

    def reopen(self) -> None:
        """After a fork: the child has files of its own."""
        self._lock = threading.Lock()
        os.close(self._lines)
        self._open()

    def address(self) -> int:
        """Where the slots lie in memory."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def describe(self, call: dict[str, Any]) -> int:
        """The slot of a kind of call; 0 when all are used."""
        with self._lock:
            slot = self._next
            if slot >= SLOTS:
                return 0
            self._next += 1
        self.line({"slot": slot, **call})
        return slot

    def add(self, slot: int, calls: float, nanoseconds: float) -> None:
        self._numbers[2 * slot] += calls
        self._numbers[2 * slot + 1] += nanoseconds

    def note(self, text: str) -> None:
        """Says what is not recorded, and why."""
        self.line({"note": text})

    def line(self, document: dict[str, Any]) -> None:
        # A full disk must not end the program.
        with contextlib.suppress(OSError, TypeError, ValueError):
            os.write(self._lines, (json.dumps(document) + "\n").encode())
