"""Arrays as bytes and back, for messages between processes. Pickles are never used."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO
from zipfile import BadZipFile

import numpy as np

from tuner.models.errors import ModelRefused
from tuner.runtime.loader import aligned_empty
from tuner.workload.arrays import numpy_dtype

Array = np.ndarray[Any, np.dtype[Any]]
_DTYPE = "|"  # between a name and a dtype


def write_npz(stream: BinaryIO, named: Mapping[str, Array]) -> None:
    """Writes the arrays by name as an uncompressed `.npz`.

    Dtypes that NumPy has not itself, such as bfloat16, are stored as their bits, with the
    dtype behind the name.
    """
    plain: dict[str, Any] = {}
    for name, array in named.items():
        own = array.dtype.isbuiltin == 1
        plain[name if own else f"{name}{_DTYPE}{array.dtype.name}"] = array if own else bits(array)
    np.savez(stream, **plain)


class _View(io.RawIOBase):
    """A file of bytes that are not copied."""

    def __init__(self, content: bytes | memoryview) -> None:
        super().__init__()
        self._content, self._place = memoryview(content), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begins = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: len(self._content)}
        self._place = max(begins[whence] + offset, 0)
        return self._place

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: Any) -> int:
        part = self._content[self._place : self._place + len(buffer)]
        buffer[: len(part)] = part
        self._place += len(part)
        return len(part)


def arrays_in(npz: bytes | memoryview) -> dict[str, Array]:
    """The inverse of `write_npz`. Raises ModelRefused for any other bytes."""
    named = {}
    try:
        with np.load(_View(npz), allow_pickle=False) as archive:
            for member in archive.files:
                name, _, dtype = member.partition(_DTYPE)
                array = archive[member]
                named[name] = array.view(numpy_dtype(dtype)) if dtype else array
    except (ValueError, TypeError, KeyError, OSError, EOFError, BadZipFile) as error:
        raise ModelRefused(f"no arrays came back: {type(error).__name__}: {error}") from error
    return named


def arrays_to(arrays: Sequence[Array]) -> bytes:
    """The arrays in their order as the bytes of an uncompressed `.npz`."""
    stream = io.BytesIO()
    write_npz(stream, {str(number): array for number, array in enumerate(arrays)})
    return stream.getvalue()


def arrays_from(content: bytes | memoryview) -> list[Array]:
    """The arrays that `arrays_to` packed. Raises ModelRefused for any other bytes."""
    return [*arrays_in(content).values()]


def bits(array: Array) -> Array:
    """The array as libraries take it: what NumPy has not itself as unsigned integers."""
    own = array.dtype.isbuiltin == 1
    return array if own else np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def aligned_copy(array: Array) -> Array:
    """The bits of the array in a buffer aligned as compiled kernels need it."""
    array = bits(array)
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def plain_values(array: Array, dtype: str) -> Array:
    """What a library returned as numbers of the declared dtype: the inverse of `bits`."""
    declared = numpy_dtype(dtype)
    return array if declared.isbuiltin == 1 else array.view(declared)
