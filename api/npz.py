"""Checks an uploaded `.npz` by its headers: names, dtypes, shapes, sizes, no objects.

An `.npz` is a ZIP of `.npy` members. A small ZIP can unpack to a large file, and a
`.npy` of dtype object holds a pickle. Both are refused here, before anything is stored.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np

from tuner.errors import UsageError
from tuner.runtime.signature import NUMPY

MAX_HEADER_BYTES = 4096
_AT_ONCE = 1 << 20  # bytes of a member unpacked at a time
# What a damaged archive makes `zipfile` raise; OverflowError at an offset beyond 2^63.
UNREADABLE = (
    *(ValueError, OverflowError, EOFError, OSError, RuntimeError),
    *(struct.error, zipfile.BadZipFile, zlib.error),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySpec:
    """What an input of a kernel or a model must be."""

    name: str
    dtype: str  # as in the workload, e.g. "bfloat16"
    shape: tuple[int, ...]

    @property
    def wire_dtype(self) -> str:
        """As NumPy has it: bfloat16 is sent as the uint16 of its bits."""
        return NUMPY[self.dtype]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.wire_dtype).itemsize


class ArrayError(UsageError):
    """The arrays sent are not the inputs of what is to run."""

    code = "invalid_arrays"


def check_npz(data: bytes, expected: Sequence[ArraySpec]) -> None:
    """Raises `ArrayError` unless `data` is an `.npz` of exactly the expected arrays.

    They must be C-ordered and have the expected dtypes and shapes.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except UNREADABLE as error:
        raise ArrayError(
            "the body is not an .npz file; write one with numpy.savez, and send its bytes"
        ) from error
    with archive:
        members = archive.infolist()
        names = [member.filename.removesuffix(".npy") for member in members]
        specs = {spec.name: spec for spec in expected}
        if len(names) != len(set(names)) or set(names) != set(specs):
            raise ArrayError(
                f"the .npz holds the arrays {shown(names)}; taken are {shown(list(specs))}"
            )
        for member, name in zip(members, names, strict=True):
            check_member(archive, member, specs[name])


def shown(names: list[str]) -> str:
    listed = ", ".join(repr(name[:64]) for name in names[:16])
    return f"({listed}{', …' if len(names) > 16 else ''})"


def check_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, spec: ArraySpec) -> None:
    """Raises ArrayError unless the member is the array that `spec` says, undamaged."""
    if member.file_size > spec.nbytes + MAX_HEADER_BYTES:
        raise ArrayError(
            f"array {spec.name!r} unpacks to {member.file_size} bytes; {spec.nbytes} are taken"
        )
    if member.flag_bits & 1 or member.compress_type not in (
        zipfile.ZIP_STORED,
        zipfile.ZIP_DEFLATED,
    ):
        raise ArrayError(
            f"array {spec.name!r} is encrypted or packed in a way other than deflate; write it "
            f"with numpy.savez"
        )
    try:
        with archive.open(member) as file:
            shape, fortran_order, dtype = read_header(file)
            while file.read(_AT_ONCE):
                pass  # to its end, where its checksum is compared
    except UNREADABLE as error:
        raise ArrayError(f"array {spec.name!r} is not a readable .npy member") from error
    if dtype.hasobject:
        raise ArrayError(f"array {spec.name!r} holds Python objects; send numbers")
    if dtype != np.dtype(spec.wire_dtype) or shape != spec.shape or fortran_order:
        order = "Fortran" if fortran_order else "C"
        raise ArrayError(
            f"array {spec.name!r} is {dtype} {list(shape)} in {order} order; "
            f"taken is {spec.wire_dtype} {list(spec.shape)} in C order"
        )
    if member.file_size < spec.nbytes:
        raise ArrayError(
            f"array {spec.name!r} ends after {member.file_size} bytes; its header promises "
            f"{spec.nbytes}"
        )


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """The array's shape, whether it is in Fortran order, and its dtype.

    Raises ValueError, or what reading the file raises.
    """
    version = np.lib.format.read_magic(file)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError("unknown .npy version")
    try:
        return readers[version](file, max_header_size=MAX_HEADER_BYTES)
    # NumPy evaluates the header as a literal and raises nearly any error.
    except Exception as error:
        raise ValueError("the header is no description of an array") from error
