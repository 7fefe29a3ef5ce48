"""Guarded buffers: a kernel cannot leave one without being noticed.

A page without access stands before and behind the data, and canary bytes fill what
alignment leaves over. The data begins at a multiple of 64 bytes and ends within 64
bytes of the rear guard page, where vector tails overrun.
"""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import DTypeLike, NDArray

ALIGNMENT = 64
CANARY = 0xC5
# NumPy asks for huge pages from this size on. Rivals have them, so kernels must too.
HUGE_FROM_BYTES = 4 << 20

_PROT_NONE, _MADV_HUGEPAGE = 0, 14  # from asm-generic/mman-common.h


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedBuffer:
    """One mapping: guard page, canary, data, canary, guard page."""

    array: NDArray[np.generic]  # row-major view of the data
    mapping: int  # address of the first guard page
    mapping_bytes: int
    front: NDArray[np.uint8]  # canary before the data, may be empty
    rear: NDArray[np.uint8]  # canary behind it, fewer than 64 bytes, may be empty

    @property
    def guards(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Address ranges (first, past the last) of the two guard pages."""
        page, end = mmap.PAGESIZE, self.mapping + self.mapping_bytes
        return (self.mapping, self.mapping + page), (end - page, end)

    def damaged(self) -> str | None:
        """Where canary bytes were overwritten, in words; None where none were."""
        if self.front.size and not bool((self.front == CANARY).all()):
            return "before its beginning"
        if self.rear.size and not bool((self.rear == CANARY).all()):
            return "behind its end"
        return None

    def release(self) -> None:
        """Unmap the buffer. The array must not be touched afterwards."""
        _libc().munmap(ctypes.c_void_p(self.mapping), ctypes.c_size_t(self.mapping_bytes))


def guarded(shape: tuple[int, ...], dtype: DTypeLike) -> GuardedBuffer:
    """A new buffer, zeroed. Raises MemoryError when it cannot be mapped."""
    kind, page = np.dtype(dtype), mmap.PAGESIZE
    nbytes = prod(shape) * kind.itemsize
    inner = -(-max(nbytes, 1) // page) * page
    total = inner + 2 * page
    libc = _libc()
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    base = libc.mmap(None, total, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if base in (None, ctypes.c_void_p(-1).value):
        raise MemoryError(f"cannot map a buffer of {nbytes} bytes")
    start, end = base + page, base + page + inner
    if inner >= HUGE_FROM_BYTES:
        # Only a hint, which some systems refuse.
        libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(inner), _MADV_HUGEPAGE)
    for guard in (base, end):
        if libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), _PROT_NONE) != 0:
            raise MemoryError("cannot protect a guard page: too many mappings")
    data = end - -(-nbytes // ALIGNMENT) * ALIGNMENT
    front, rear = _bytes_at(start, data - start), _bytes_at(data + nbytes, end - data - nbytes)
    front[:], rear[:] = CANARY, CANARY
    array = _bytes_at(data, nbytes).view(kind).reshape(shape)
    return GuardedBuffer(array=array, mapping=base, mapping_bytes=total, front=front, rear=rear)


def guarded_copy(array: NDArray[np.generic]) -> GuardedBuffer:
    """A guarded copy of an array."""
    buffer = guarded(array.shape, array.dtype)
    buffer.array[...] = array
    return buffer


def _bytes_at(address: int, length: int) -> NDArray[np.uint8]:
    if length == 0:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * length).from_address(address))


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    return libc
