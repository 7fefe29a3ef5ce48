"""Memory that a judge and a guest share: control words, then slots of buffers.

A slot has the inputs and outputs of one call. As everywhere, a guard page stands before
and behind each buffer, and canary bytes fill what alignment leaves over; the guest finds
its inputs on pages that it may only read. Both sides compute the same layout.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tuner.measure.buffers import ALIGNMENT, CANARY
from tuner.measure.check import Array, raw
from tuner.workload.arrays import numpy_dtype
from tuner.workload.expression import Tensor

# Offsets of the control words in the first page; tuner/runtime/src/guest.c has the same.
GO, DONE, COUNT, STATUS, FAILED, STATE_CHANGED = 0, 64, 128, 132, 136, 140
READY = 1  # of DONE, once the guest waits for its first round
STOP = 0xFFFFFFFF  # of COUNT: the guest is to end

_PROT_NONE, _PROT_READ = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where each buffer lies. Offsets are bytes from the beginning of the arena."""

    takes: tuple[Tensor, ...]  # inputs of a call
    gives: tuple[Tensor, ...]  # its outputs
    slots: int

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (*self.takes, *self.gives)

    @property
    def nbytes(self) -> int:
        return mmap.PAGESIZE * (1 + self.slots * self._slot_pages)

    @property
    def slot_bytes(self) -> int:
        """What a call reads and writes."""
        return sum(_nbytes(tensor) for tensor in self.tensors)

    def pages(self, slot: int, place: int) -> tuple[int, int]:
        """First byte and the one past the last of the pages of a buffer; guards stand around."""
        before = sum(_pages(tensor) + 2 for tensor in self.tensors[:place])
        first = 1 + slot * self._slot_pages + before + 1
        last = first + _pages(self.tensors[place])
        return first * mmap.PAGESIZE, last * mmap.PAGESIZE

    def data(self, slot: int, place: int) -> int:
        """Offset of a buffer's first element, a multiple of 64."""
        nbytes = _nbytes(self.tensors[place])
        return self.pages(slot, place)[1] - -(-nbytes // ALIGNMENT) * ALIGNMENT

    @property
    def _slot_pages(self) -> int:
        return sum(_pages(tensor) + 2 for tensor in self.tensors)


def _nbytes(tensor: Tensor) -> int:
    return prod(tensor.shape) * numpy_dtype(tensor.dtype).itemsize


def _pages(tensor: Tensor) -> int:
    return -(-max(_nbytes(tensor), 1) // mmap.PAGESIZE)


class Arena:
    """One process's mapping of it."""

    def __init__(self, path: str, layout: Layout) -> None:
        """`path`: a file of `layout.nbytes`. Raises OSError."""
        self.layout = layout
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._mapping = mmap.mmap(descriptor, layout.nbytes)
        finally:
            os.close(descriptor)
        self._words = np.frombuffer(self._mapping, np.uint32, mmap.PAGESIZE // 4)
        self.address = int(self._words.ctypes.data)

    def word(self, offset: int) -> int:
        return int(self._words[offset // 4])

    def set_word(self, offset: int, value: int) -> None:
        self._words[offset // 4] = value

    def array(self, slot: int, place: int) -> Array:
        """A view of a buffer, in its dtype and shape."""
        tensor = self.layout.tensors[place]
        return np.ndarray(
            tensor.shape,
            numpy_dtype(tensor.dtype),
            buffer=self._mapping,
            offset=self.layout.data(slot, place),
        )

    def fill(self, slot: int, inputs: Sequence[Array], poison: int) -> None:
        """Write the inputs of a slot, and `poison` into its outputs; renew its canaries."""
        for place, array in enumerate(inputs):
            self.array(slot, place)[...] = array
        for place in range(len(inputs), len(self.layout.tensors)):
            raw(self.array(slot, place))[...] = poison
        for place in range(len(self.layout.tensors)):
            for canary in self._canaries(slot, place):
                canary[...] = CANARY

    def damaged(self, slot: int) -> str | None:
        """The buffer around which canary bytes or a guard page were overwritten; None where
        none were."""
        for place, tensor in enumerate(self.layout.tensors):
            if any((canary != CANARY).any() for canary in self._canaries(slot, place)):
                return tensor.name
            if any(guard.any() for guard in self._guards(slot, place)):
                return tensor.name
        return None

    def changed(self, slot: int, inputs: Sequence[Array]) -> str | None:
        """The input of a slot that is not what `fill` wrote; None where all are."""
        for place, array in enumerate(inputs):
            if not np.array_equal(raw(self.array(slot, place)), raw(array)):
                return self.layout.takes[place].name
        return None

    def pointers(self) -> ctypes.Array[ctypes.c_void_p]:
        """Addresses of all buffers, slot after slot."""
        layout = self.layout
        addresses = [
            self.address + layout.data(slot, place)
            for slot in range(layout.slots)
            for place in range(len(layout.tensors))
        ]
        return (ctypes.c_void_p * max(1, len(addresses)))(*addresses)

    def protect(self) -> list[tuple[str, int, int]]:
        """Take from this process what a guest must not touch.

        Its name, first address and the address past the last, of each such piece: "out of
        bounds of NAME" and "into input NAME". Raises OSError.
        """
        pieces, page = [], mmap.PAGESIZE
        for slot in range(self.layout.slots):
            for place, tensor in enumerate(self.layout.tensors):
                first, last = (self.address + end for end in self.layout.pages(slot, place))
                for guard in (first - page, last):
                    _protect(guard, page, _PROT_NONE)
                    pieces.append((f"out of bounds of {tensor.name}", guard, guard + page))
                if place < len(self.layout.takes):
                    _protect(first, last - first, _PROT_READ)
                    pieces.append((f"into input {tensor.name}", first, last))
        return pieces

    def close(self) -> None:
        """Unmap it, once no view is left."""
        del self._words
        self._mapping.close()

    def _guards(self, slot: int, place: int) -> list[np.ndarray[Any, np.dtype[np.uint64]]]:
        """The guard pages of a buffer, which hold zeros: a kernel may unprotect them."""
        first, last = self.layout.pages(slot, place)
        count = mmap.PAGESIZE // 8
        return [
            np.frombuffer(self._mapping, np.uint64, count, offset)
            for offset in (first - mmap.PAGESIZE, last)
        ]

    def _canaries(self, slot: int, place: int) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], ...]:
        layout = self.layout
        first, last = layout.pages(slot, place)
        data = layout.data(slot, place)
        end = data + _nbytes(layout.tensors[place])
        return tuple(
            np.frombuffer(self._mapping, np.uint8, count, offset)
            for offset, count in ((first, data - first), (end, last - end))
            if count
        )


def _protect(address: int, length: int, protection: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    status = libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(length), protection)
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mprotect: {os.strerror(number)}")
