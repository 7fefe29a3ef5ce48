"""Values of a model's inputs that a user gives in an `.npz` file, by the inputs' names."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tuner.models.errors import ModelRefused

Array = np.ndarray[Any, np.dtype[Any]]
# Array by the name of an input, in the input's dtype; bfloat16 as its bits, uint16.
InputValues: TypeAlias = Mapping[str, Array]

LARGEST_FILE = 1 << 31  # bytes, packed or not
MOST_ARRAYS = 64
_FAULTS = (ValueError, OSError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)


def read_values(path: Path) -> InputValues:
    """The arrays in an `.npz` file by name.

    Raises ModelRefused for a path that is no readable file, damaged or too large ones,
    and arrays of Python objects, which are never unpickled.
    """
    content = _content(path, ".npz")
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except _FAULTS as error:
        raise ModelRefused(f"{path} is no .npz file; write one with numpy.savez") from error
    with archive:
        return _arrays(archive, path)


def read_array(path: Path) -> Array:
    """The array in an `.npy` file. Raises as `read_values` does."""
    return _parsed(_content(path, ".npy"), str(path), "numpy.save")


def _content(path: Path, suffix: str) -> bytes:
    try:
        if not path.is_file():
            raise ModelRefused(f"{path} is no file; give an {suffix} file of the model's inputs")
        if path.stat().st_size > LARGEST_FILE:
            raise ModelRefused(
                f"{path} has {path.stat().st_size} bytes, the limit is {LARGEST_FILE}"
            )
        return path.read_bytes()
    except OSError as error:
        raise ModelRefused(f"{path} cannot be read: {error.strerror}") from error


def _arrays(archive: zipfile.ZipFile, path: Path) -> InputValues:
    members = archive.infolist()
    unpacked = sum(member.file_size for member in members)
    if len(members) > MOST_ARRAYS or unpacked > LARGEST_FILE:
        raise ModelRefused(
            f"{path} has {len(members)} arrays of {unpacked} bytes; {MOST_ARRAYS} arrays of "
            f"{LARGEST_FILE} bytes are taken"
        )
    values: dict[str, Array] = {}
    for member in members:
        name = member.filename.removesuffix(".npy")
        if name in values:
            raise ModelRefused(f"{path} has two arrays called {name[:64]!r}")
        values[name] = _array(archive, member, f"{path}: array {name[:64]!r}")
    return values


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, what: str) -> Array:
    """An array of the archive; `what` begins the messages."""
    try:
        with archive.open(member) as file:
            content = file.read()  # to its end, where its checksum is compared
    except Exception as error:  # zipfile raises many kinds
        raise ModelRefused(f"{what} is damaged; write the file again with numpy.savez") from error
    return _parsed(content, what, "numpy.savez")


def _parsed(content: bytes, what: str, writer: str) -> Array:
    try:
        array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    # NumPy evaluates the header as a literal and raises nearly any error.
    except Exception as error:
        if "Object arrays" in str(error):
            raise ModelRefused(f"{what} holds Python objects; give numbers") from error
        raise ModelRefused(f"{what} is damaged; write the file again with {writer}") from error
    return np.ascontiguousarray(array).reshape(array.shape)
