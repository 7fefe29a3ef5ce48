"""The frames between a host and the agent on a device.

The same structs as tuner/runtime/agent/protocol.h. Numbers are little-endian. What a
device says is checked here for its form, by whoever uses it for its sense.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from math import isfinite
from typing import TypeVar

from tuner.measure.outcome import printable
from tuner.target.architectures.elf import MACHINES

VERSION = 3
MAX_TENSORS = 16  # inputs, and outputs, and packed buffers
MAX_CASES = 8
MAX_TEXT = 1024
MAX_JSON = 1 << 20
MAX_BLOB = 1 << 28
HASH = 32
KEEP = 256  # instead of a poison
LIMIT_ROWS = 32

HEADER = struct.Struct("<II")
_DEVICE = struct.Struct("<4IQ4Q64s")
_OPEN = struct.Struct("<32sIIQ")
_BIND = struct.Struct(f"<8Iq16Q16Q16s32s{'256s' * 5}{MAX_CASES * MAX_TENSORS * HASH}s")
_RUN = struct.Struct("<5I")
_MEASURE = struct.Struct("<IIQ")
_SURROUNDINGS = struct.Struct("<IIQ")
_ENDED = struct.Struct("<IiI")
_NUMBER = struct.Struct("<I")
_STATUS = struct.Struct("<i")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}\Z")


class Ask(IntEnum):
    HELLO, BLOB, FORGET, OPEN, BIND, RUN, OUTPUT, CHECK, PACE, CLOSE, MEASURE = range(1, 12)


class Answer(IntEnum):
    DEVICE, DONE, OPENED, TIMES, STATUS, BYTES, SURROUNDINGS, SECONDS, LIMITS, ENDED, BEAT = range(
        64, 75
    )
    REFUSED = 75


class End(IntEnum):
    """Why a candidate's process is gone."""

    EXIT, SIGNAL, DEADLINE, GUARD, MEMORY, NOT_LOADED, BROKE_PROTOCOL = range(1, 8)


class BufferChange(IntEnum):
    """What a call left around the outputs."""

    UNCHANGED, INPUT, BEFORE, BEHIND = range(4)


class FenceBit(IntFlag):
    """What the children of an agent are fenced by."""

    CALLS, FILES, PRIVILEGES = 1, 2, 4


REFUSALS = {
    1: "a frame that is none",
    2: "another version of the protocol: build the agent anew",
    3: "content without the hash that it was announced by",
    4: "a frame out of order",
    5: "more than its memory has room for",
    6: "its system has a fence for candidates and refuses it to the agent",
}


Kind = TypeVar("Kind", bound=IntEnum)


class FrameError(Exception):
    """A frame that the protocol does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What an agent says of its machine."""

    architecture: str  # as the Linux kernel names it
    cores: int  # that the agent may use
    fences: FenceBit
    memory_bytes: int
    identity: int  # MIDR_EL1 on Arm, CPUID's signature on x86; 0: the machine does not tell
    # AT_HWCAP and AT_HWCAP2 of the auxiliary vector. On x86-64 CPUID's leaf 1, ecx, with above it
    # leaf 7, ebx; and XCR0.
    hwcaps: tuple[int, int]
    vector_bytes: int  # of its scalable vectors; 0: it has none
    host: str  # its name

    @classmethod
    def of(cls, payload: bytes) -> DeviceFacts:
        """Raises FrameError for what cannot be."""
        version, machine, cores, fences, memory, identity, low, high, vector, host = _DEVICE.unpack(
            payload
        )
        name = host.partition(b"\0")[0].decode("ascii", "replace")
        if version != VERSION or machine not in MACHINES or not 1 <= cores <= 1024:
            raise FrameError(f"a device of version {version}, machine {machine}, {cores} cores")
        if fences & ~7 or not _HOST.match(name):
            raise FrameError(f"a device called {name!r} with fences {fences}")
        return cls(
            architecture=MACHINES[machine],
            cores=cores,
            fences=FenceBit(fences),
            memory_bytes=memory,
            identity=identity,
            hwcaps=(low, high),
            vector_bytes=vector,
            host=name,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A function of a library, and the buffers that it is called on."""

    function: str
    timer: str  # the library's own symbols
    threader: str
    reason: str
    threads: int
    inputs: tuple[tuple[bytes, ...], ...]  # hashes, by case
    output_bytes: tuple[int, ...]
    rows: int | None = None  # of a portfolio
    # Where constants are packed: by what, which inputs, into what, and what the function
    # takes of inputs and packed buffers.
    packer: str = ""
    constants: tuple[int, ...] = ()
    packed_bytes: tuple[int, ...] = ()
    passed: tuple[int, ...] = ()

    def packed(self) -> bytes:
        """The frame's payload. Raises FrameError for what an agent does not take."""
        count = len(self.inputs[0])
        names = (self.function, self.timer, self.threader, self.reason, self.packer)
        if not all(map(_NAME.match, names if self.packed_bytes else names[:-1])):
            raise FrameError(f"{names} are no names of C")
        parts = (self.inputs[0], self.output_bytes, self.packed_bytes, self.constants)
        if any(len(part) > MAX_TENSORS for part in parts) or len(self.passed) > 2 * MAX_TENSORS:
            raise FrameError(f"more than {MAX_TENSORS} tensors of a kind")
        if not 1 <= len(self.inputs) <= MAX_CASES:
            raise FrameError(f"{len(self.inputs)} cases")
        places = range(count + len(self.packed_bytes))
        if not (set(self.constants) <= set(range(count)) and set(self.passed) <= set(places)):
            raise FrameError("a tensor that is not there")
        if any(not 0 <= size <= MAX_BLOB for size in (*self.output_bytes, *self.packed_bytes)):
            raise FrameError(f"a tensor of more than {MAX_BLOB} bytes")
        blank = bytes(HASH)
        hashes = b"".join(
            b"".join((*case, *[blank] * (MAX_TENSORS - len(case)))) for case in self.inputs
        )
        return _BIND.pack(
            count,
            len(self.output_bytes),
            len(self.packed_bytes),
            len(self.constants),
            len(self.passed),
            len(self.inputs),
            int(self.rows is not None),
            self.threads,
            self.rows or 0,
            *_padded(self.output_bytes),
            *_padded(self.packed_bytes),
            bytes(self.constants),
            bytes(self.passed),
            *(name.encode() for name in names),
            hashes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Whether inputs and what lies around buffers are as they were."""

    what: BufferChange
    tensor: int  # inputs are counted first
    offset: int  # of the first byte of an input that changed

    @classmethod
    def of(cls, payload: bytes) -> Surroundings:
        what, tensor, offset = _SURROUNDINGS.unpack(payload)
        return cls(what=_member(BufferChange, what), tensor=tensor, offset=offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The candidate's process is gone."""

    how: End
    code: int  # exit status or signal
    tensor: int
    text: str

    @classmethod
    def of(cls, payload: bytes) -> Ended:
        how, code, tensor = _ENDED.unpack_from(payload)
        return cls(how=_member(End, how), code=code, tensor=tensor, text=_text(payload[12:]))


def opening(library: bytes, *, deadline_s: float, threads: int, memory_bytes: int) -> bytes:
    return _OPEN.pack(library, max(1, round(deadline_s * 1000)), threads, memory_bytes)


def running(case: int, *, poison: int, number: int, repeat: int, settle_us: int) -> bytes:
    return _RUN.pack(case, poison, number, repeat, settle_us)


def measuring(seconds: float, most_bytes: int) -> bytes:
    return _MEASURE.pack(round(seconds * 1000), 0, most_bytes)


def number(value: int) -> bytes:
    return _NUMBER.pack(value)


def numbers(payload: bytes) -> tuple[float, ...]:
    """Doubles, all of them finite. Raises FrameError."""
    if len(payload) % 8:
        raise FrameError(f"{len(payload)} bytes are no numbers")
    values = struct.unpack(f"<{len(payload) // 8}d", payload)
    if not all(map(isfinite, values)):
        raise FrameError(f"{values} are not finite")
    return values


def status_of(payload: bytes) -> tuple[int, str]:
    """The error code of a call, and its text."""
    (status,) = _STATUS.unpack_from(payload)
    return int(status), _text(payload[4:])


def refusal_of(payload: bytes) -> str:
    (reason,) = _NUMBER.unpack(payload)
    return REFUSALS.get(reason, f"reason {reason}")


def lengths(asked: Ask, expected: int = 0) -> dict[int, tuple[int, int]]:
    """The answers to a request: type, and least and most bytes.

    `expected` is the length of what was asked for, where the host knows it.
    """
    own: dict[Ask, dict[int, tuple[int, int]]] = {
        Ask.HELLO: {Answer.DEVICE: (_DEVICE.size, _DEVICE.size)},
        Ask.OPEN: {Answer.OPENED: (2, MAX_JSON)},
        Ask.RUN: {Answer.TIMES: (expected, expected), Answer.STATUS: (4, 4 + MAX_TEXT)},
        Ask.OUTPUT: {Answer.BYTES: (expected, expected)},
        Ask.CHECK: {Answer.SURROUNDINGS: (_SURROUNDINGS.size, _SURROUNDINGS.size)},
        Ask.PACE: {Answer.SECONDS: (8, 8)},
        Ask.MEASURE: {Answer.LIMITS: (0, 8 * (2 + 4 * LIMIT_ROWS))},
    }
    return {
        **own.get(asked, {Answer.DONE: (0, 0)}),
        Answer.BEAT: (0, 0),
        Answer.REFUSED: (4, 4),
        Answer.ENDED: (_ENDED.size, _ENDED.size + MAX_TEXT),
    }


def _padded(values: Sequence[int]) -> list[int]:
    return [*values, *[0] * (MAX_TENSORS - len(values))]


def _text(data: bytes) -> str:
    return printable(data.decode("utf-8", "replace").partition("\0")[0].strip())


def _member(kind: type[Kind], value: int) -> Kind:
    try:
        return kind(value)
    except ValueError as error:
        raise FrameError(f"{value} is no {kind.__name__}") from error
