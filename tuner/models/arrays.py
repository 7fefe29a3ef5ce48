"""Arrays as bytes and back, for messages between processes. Pickles are never used."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any
from zipfile import BadZipFile

import numpy as np

from tuner.models.errors import ModelRefused
from tuner.runtime.loader import aligned_empty

Array = np.ndarray[Any, np.dtype[Any]]


def arrays_to(arrays: Sequence[Array]) -> bytes:
    """The arrays in their order as the bytes of an uncompressed `.npz`."""
    stream = io.BytesIO()
    np.savez(stream, *arrays)
    return stream.getvalue()


def arrays_from(content: bytes) -> list[Array]:
    """The arrays that `arrays_to` packed. Raises ModelRefused for any other bytes."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return [archive[f"arr_{number}"] for number in range(len(archive.files))]
    except (ValueError, KeyError, OSError, EOFError, BadZipFile) as error:
        raise ModelRefused(f"no arrays came back: {error}") from error


def aligned_copy(array: Array) -> Array:
    """The array in a buffer aligned as compiled kernels need it."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def plain_values(array: Array, dtype: str) -> Array:
    """What a library returned, where bfloat16 travels as its 16 bits, as numbers."""
    if dtype != "bfloat16" or array.dtype != np.uint16:
        return array
    return (array.astype(np.uint32) << 16).view(np.float32)
