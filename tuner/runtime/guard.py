"""Buffers between guard pages, for checking what a kernel touches: a stray access beyond either page faults at once.

A mapping is whole pages, so a buffer touches the guard page at one edge only (`edge`); on the other side, and where the
size is no multiple of 64 bytes, the rest is filled with a canary that `intact()` checks. Linux and other POSIX systems.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from math import prod
from types import TracebackType
from typing import Any, Literal

import numpy as np

from tuner.runtime.loader import ALIGNMENT, NUMPY, Array

CANARY = 0xA5
PROT_NONE, PROT_READ_WRITE = 0, mmap.PROT_READ | mmap.PROT_WRITE
MAP_PRIVATE_ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
MAP_FAILED = ctypes.c_void_p(-1).value


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


class GuardedBuffer:
    """One array, 64-byte aligned, that ends (`edge="end"`) or begins (`edge="begin"`) at an inaccessible page.

    With edge="end" a size that is no multiple of 64 bytes leaves a rest of less than 64 bytes before the page; the rest is
    canary. `array` is valid until `close()`. Raises MemoryError when the system gives no memory.
    """

    def __init__(self, shape: Sequence[int], dtype: str, *, edge: Literal["begin", "end"] = "end") -> None:
        kind: np.dtype[Any] = np.dtype(NUMPY.get(dtype, dtype))
        nbytes = prod(shape) * kind.itemsize
        page = mmap.PAGESIZE
        room = -(-max(nbytes, 1) // page) * page
        self._libc = _libc()
        self._length = room + 2 * page
        base = self._libc.mmap(None, self._length, PROT_NONE, MAP_PRIVATE_ANONYMOUS, -1, 0)
        if base is None or base == MAP_FAILED:
            raise MemoryError(f"no memory for a guarded buffer of {nbytes} bytes: {os.strerror(ctypes.get_errno())}")
        self._base: int | None = int(base)
        if self._libc.mprotect(base + page, room, PROT_READ_WRITE) != 0:
            reason = os.strerror(ctypes.get_errno())
            self.close()
            raise MemoryError(f"no memory for a guarded buffer of {nbytes} bytes: {reason}")
        offset = 0 if edge == "begin" else (room - nbytes) // ALIGNMENT * ALIGNMENT
        self._bytes: Array | None = np.ctypeslib.as_array((ctypes.c_uint8 * room).from_address(base + page))
        self._start, self._end = offset, offset + nbytes
        self._bytes[: self._start] = self._bytes[self._end :] = CANARY
        self.array: Array = self._bytes[offset : offset + nbytes].view(kind).reshape(tuple(shape))

    def poison(self, byte: int) -> None:
        """Fills the array with one byte value, so that an output left unwritten shows."""
        self.array.reshape(-1).view(np.uint8)[:] = byte

    def intact(self) -> bool:
        """Whether the canary around the array is as it was left."""
        if self._bytes is None:
            raise ValueError("the guarded buffer is closed")
        return bool((self._bytes[: self._start] == CANARY).all() and (self._bytes[self._end :] == CANARY).all())

    def close(self) -> None:
        """Gives the memory back; the array must not be touched afterwards. Idempotent."""
        if self._base is not None:
            self.array = np.empty(0, np.uint8)
            self._bytes = None
            self._libc.munmap(self._base, self._length)
            self._base = None

    def __enter__(self) -> GuardedBuffer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
