"""Tensors of a GGUF file, as constants of kernels.

The format is public (ggml-org/ggml, docs/gguf.md; blocks in ggml-common.h): a header,
metadata, a table of tensors, and their data at multiples of an alignment. Quantised rows
are blocks of 32 weights behind a float16 scale. Q4_0 has weights w + 8, of which a byte
holds number j below number j + 16; Q8_0 has bytes with a sign. Both become constants of
the operator `qdense`, bit by bit.

Q4_K has blocks of 256: two float16, d and e, then a scale and a least number of 6 bits for
each group of 32, then the weights. A weight is d * scale * number - e * least, which is
(number - zero) * scale with the scales and zero points of `qdense`. A byte holds number j
of a group below number j of the next. The first four groups' scales and least numbers are
the low 6 bits of bytes 0 to 3 and 4 to 7; of the last four bytes 8 to 11 hold the low 4
bits, a scale below a least number, and the high 2 bits of bytes 0 to 7 theirs.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tuner.errors import UsageError

MAGIC, VERSIONS = b"GGUF", (2, 3)
BLOCK = 32  # weights that share a scale
K_BLOCK = 256  # weights that share the scales of their scales
MOST_DIMENSIONS = 4  # as ggml has them
# Formats of `struct` of the scalar types of metadata, by number.
SCALARS: Mapping[int, str] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
TEXT, ARRAY = 8, 9
# By number: name, elements of a block, and its bytes.
TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", BLOCK, 2 + BLOCK // 2),
    8: ("Q8_0", BLOCK, 2 + BLOCK),
    12: ("Q4_K", K_BLOCK, 2 + 2 + 12 + K_BLOCK // 2),
}


class BadGguf(UsageError):
    """A file that is no GGUF file, or a tensor of a type that is not read."""

    code = "invalid_model"


@dataclass(frozen=True, kw_only=True)
class PackedWeights:
    """Weights of a layer as `qdense` takes them."""

    weight: Literal["int4", "uint4", "int8"]
    packed: NDArray[Any]  # uint8 [N, K/2], the low half first, or int8 [N, K]
    scales: NDArray[np.float32]  # [N, K/32]
    zeros: NDArray[np.float32] | None = None  # of uint4: zero points [N, K/32]

    def spec(self, rows: int = 1) -> str:
        """The workload that multiplies by these weights, which are constants of it."""
        units, blocks = self.scales.shape
        spec = f"qdense:M={rows},N={units},K={blocks * BLOCK},weight={self.weight},group={BLOCK}"
        return f"{spec},const=W+S" if self.zeros is None else f"{spec},zeros=float32,const=W+S+Z"


class GgufFile:
    """The tensors of a file by name; each is read when it is asked for."""

    def __init__(self, path: str | Path) -> None:
        """Raises BadGguf for a file that is none, OSError for one that cannot be read."""
        self.path = Path(path)
        if self.path.stat().st_size == 0:
            raise BadGguf(f"{self.path} is empty")
        self._content = np.memmap(self.path, np.uint8, "r")
        reader = _Reader(self._content, self.path)
        if reader.bytes_of(4) != MAGIC:
            raise BadGguf(f"{self.path} is no GGUF file: it does not begin with GGUF")
        version = int(reader.scalar("I"))
        if version not in VERSIONS:
            raise BadGguf(f"{self.path} has version {version}; 2 and 3 are read")
        tensors, entries = int(reader.scalar("Q")), int(reader.scalar("Q"))
        self.metadata: dict[str, Any] = {}
        for _ in range(entries):
            name = reader.text()
            self.metadata[name] = reader.value(int(reader.scalar("I")))
        infos = {}
        for _ in range(tensors):
            name = reader.text()
            count = int(reader.scalar("I"))
            if not 1 <= count <= MOST_DIMENSIONS:
                raise BadGguf(f"{self.path}: {name!r} has {count} dimensions; 1 to 4 are read")
            shape = tuple(int(reader.scalar("Q")) for _ in range(count))[::-1]
            infos[name] = (shape, int(reader.scalar("I")), int(reader.scalar("Q")))
        self._infos = infos
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise BadGguf(f"{self.path} has an alignment of {alignment!r}")
        self._start = -(-reader.position // alignment) * alignment

    @property
    def names(self) -> tuple[str, ...]:
        """Of all tensors, in the file's order."""
        return tuple(self._infos)

    def __getitem__(self, name: str) -> NDArray[Any] | PackedWeights:
        """An array of float32 or float16, or the packed weights of a matrix.

        Raises KeyError, or BadGguf for a type that is not read.
        """
        shape, number, offset = self._infos[name]
        if number not in TYPES:
            kinds = ", ".join(kind for kind, _, _ in TYPES.values())
            raise BadGguf(f"{self.path}: {name!r} is of GGUF type {number}; {kinds} are read")
        kind, elements, size = TYPES[number]
        if shape[-1] % elements:
            raise BadGguf(
                f"{self.path}: {name!r} has rows of {shape[-1]}, no multiple of {elements}"
            )
        start, length = self._start + offset, prod(shape) // elements * size
        if start + length > self._content.size:
            raise BadGguf(f"{self.path} ends within {name!r}; it may be cut off")
        data = np.ascontiguousarray(self._content[start : start + length])
        if elements == 1:
            return data.view("<f4" if kind == "F32" else "<f2").reshape(shape)
        if len(shape) != 2:
            raise BadGguf(f"{self.path}: {name!r} is {kind} and no matrix")
        blocks = data.reshape(shape[0], -1, size)
        if kind == "Q4_K":
            return _k_weights(blocks)
        scales = blocks[:, :, :2].copy().view("<f2")[:, :, 0].astype(np.float32)
        numbers = blocks[:, :, 2:]
        if kind == "Q8_0":
            packed = numbers.reshape(shape).view(np.int8)
            return PackedWeights(weight="int8", packed=packed, scales=scales)
        halves = np.concatenate([numbers & 15, numbers >> 4], -1).reshape(shape)
        return PackedWeights(weight="int4", packed=_packed(halves), scales=scales)


def _packed(numbers: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rows of numbers of 4 bits, two to a byte."""
    return np.asarray(numbers[:, ::2] | numbers[:, 1::2] << 4, np.uint8)


def _k_weights(blocks: NDArray[np.uint8]) -> PackedWeights:
    """Of blocks of Q4_K, [N, K/256, bytes]."""
    units = len(blocks)
    factors = blocks[:, :, :4].copy().view("<f2").astype(np.float32)
    first, second, last = (blocks[:, :, 4 + 4 * part : 8 + 4 * part] for part in range(3))
    scales = np.concatenate([first & 63, last & 15 | (first >> 6) << 4], -1)
    least = np.concatenate([second & 63, last >> 4 | (second >> 6) << 4], -1)
    steps = (factors[:, :, :1] * scales).reshape(units, -1)
    below = (factors[:, :, 1:] * least).reshape(units, -1)
    halves = blocks[:, :, 16:].reshape(units, -1, 1, BLOCK)
    numbers = np.concatenate([halves & 15, halves >> 4], 2).reshape(units, -1, BLOCK)
    # Without a scale all weights of a group are its least number.
    numbers = np.where((steps == 0)[:, :, None], np.uint8(0), numbers)
    steps = np.where(steps == 0, np.float32(1), steps)
    return PackedWeights(
        weight="uint4",
        packed=_packed(numbers.reshape(units, -1)),
        scales=steps,
        zeros=below / steps,
    )


class _Reader:
    """Reads one value after another, and nothing beyond the end."""

    def __init__(self, content: NDArray[np.uint8], path: Path) -> None:
        self._content, self._path = content, path
        self.position = 0

    def bytes_of(self, length: int) -> bytes:
        if length > self._content.size - self.position:
            raise BadGguf(f"{self._path} ends within its header; it may be cut off")
        start, self.position = self.position, self.position + length
        return self._content[start : self.position].tobytes()

    def scalar(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.bytes_of(struct.calcsize(f"<{form}")))[0]

    def text(self) -> str:
        return self.bytes_of(int(self.scalar("Q"))).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """Of metadata; an array's elements are scalars or texts."""
        if kind == TEXT:
            return self.text()
        if kind in SCALARS:
            return self.scalar(SCALARS[kind])
        if kind != ARRAY:
            raise BadGguf(f"{self._path} has metadata of type {kind}, which is none")
        inner, length = int(self.scalar("I")), int(self.scalar("Q"))
        if inner == TEXT:
            return [self.text() for _ in range(length)]
        if inner not in SCALARS:
            raise BadGguf(f"{self._path} has metadata with an array of type {inner}")
        size = struct.calcsize(f"<{SCALARS[inner]}")
        return np.frombuffer(self.bytes_of(length * size), f"<{SCALARS[inner]}").tolist()
