"""What may be uploaded as arrays: exactly the kernel's inputs, and never anything that
unpickles or unpacks without bound."""

from __future__ import annotations

import contextlib
import io
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tuner.api.npz import ArrayError, ArraySpec, check_npz

SPECS = (
    ArraySpec(name="A", dtype="float32", shape=(4, 3)),
    ArraySpec(name="B", dtype="bfloat16", shape=(3,)),
)


def pack(**arrays: NDArray[np.generic]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, **arrays)
    return buffer.getvalue()


def good() -> dict[str, NDArray[np.generic]]:
    return {"A": np.zeros((4, 3), np.float32), "B": np.zeros(3, np.uint16)}


def test_the_inputs_pass_packed_or_not() -> None:
    check_npz(pack(**good()), SPECS)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **good())
    check_npz(buffer.getvalue(), SPECS)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"A": np.zeros((4, 3), np.float64)}, "float64"),
        ({"A": np.zeros((3, 4), np.float32)}, r"\[3, 4\]"),
        ({"A": np.asfortranarray(np.zeros((4, 3), np.float32))}, "Fortran"),
        ({"C": np.zeros(1)}, "taken are"),
        ({"A": np.array([object()] * 12, dtype=object).reshape(4, 3)}, "objects|unpacks"),
    ],
)
def test_other_arrays_are_refused_by_name(
    change: dict[str, NDArray[np.generic]], text: str
) -> None:
    with pytest.raises(ArrayError, match=text):
        check_npz(pack(**{**good(), **change}), SPECS)


def test_a_bomb_is_refused_by_its_declared_size() -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, A=np.zeros(50_000_000, np.float32), B=np.zeros(3, np.uint16))
    with pytest.raises(ArrayError, match="unpacks to"):
        check_npz(buffer.getvalue(), SPECS)


def test_a_member_shorter_than_its_header_is_refused() -> None:
    buffer = io.BytesIO()
    member = io.BytesIO()
    np.save(member, np.zeros((4, 3), np.float32))
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("A.npy", member.getvalue()[:-140])
        archive.writestr("B.npy", b"\x93NUMPY")
    with pytest.raises(ArrayError):
        check_npz(buffer.getvalue(), SPECS)


@given(st.binary(max_size=300))
def test_any_bytes_give_one_clear_refusal(data: bytes) -> None:
    with pytest.raises(ArrayError):
        check_npz(data, SPECS)


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_file_never_raises_anything_else(position: int, value: int) -> None:
    data = bytearray(pack(**good()))
    data[position % len(data)] = value
    with contextlib.suppress(ArrayError):
        check_npz(bytes(data), SPECS)


@pytest.mark.parametrize("offset", [2**63 - 1, 2**63, 2**64 - 1])
def test_a_member_beyond_any_file_is_refused(offset: int) -> None:
    data = pack(**good())
    start = data.index(b"PK\x01\x02")  # of the central directory
    directory, extra = bytearray(data[start:]), struct.pack("<HHQ", 1, 8, offset)
    end = directory.rindex(b"PK\x05\x06")
    (size,) = struct.unpack_from("<I", directory, end + 12)
    struct.pack_into("<I", directory, end + 12, size + len(extra))
    struct.pack_into("<I", directory, 42, 2**32 - 1)  # the offset is in the extra field
    (name, old) = struct.unpack_from("<HH", directory, 28)
    struct.pack_into("<H", directory, 30, old + len(extra))
    directory[46 + name : 46 + name] = extra
    with pytest.raises(ArrayError, match="'A' is not a readable"):
        check_npz(data[:start] + bytes(directory), SPECS)


@pytest.mark.parametrize("compressed", [False, True])
def test_every_byte_of_an_array_is_checked(compressed: bool) -> None:
    """What the archive promises of its bytes is found out here, not by the process that
    measures."""
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(
        buffer, A=np.ones((4, 3), np.float32), B=np.zeros(3, np.uint16)
    )
    data = bytearray(buffer.getvalue())
    data[data.index(b"B.npy") - 60] ^= 0xFF  # in the data of A
    with pytest.raises(ArrayError, match="'A' is not a readable"):
        check_npz(bytes(data), SPECS)


@pytest.mark.parametrize(
    "text",
    ["{[]: 1}", "{'descr':(", "(" * 60, "{1:2,'a':3}", "'''", "{'descr':('<f4',),'shape':(4,)}"],
)
def test_no_header_raises_anything_else(text: str) -> None:
    header = text.encode().ljust(118) + b"\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(
            "A.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(48)
        )
        archive.writestr("B.npy", b"\x93NUMPY")
    with pytest.raises(ArrayError, match="'A' is not a readable"):
        check_npz(buffer.getvalue(), SPECS)
