"""Messages between a driver and its runner process.

Each is a JSON document after its length in four bytes. Nothing but JSON crosses: what a
candidate's process sends is trusted no further than a parser of plain data.
"""

from __future__ import annotations

import json
import math
import os
import select
import struct
import time
from collections.abc import Mapping
from typing import Any

# JSON as it came. Whoever reads a field checks it.
Document = Mapping[str, Any]

MAX_MESSAGE_BYTES = 64 << 20
_LENGTH = struct.Struct(">I")


class WireError(Exception):
    """The other side closed, broke the framing, or did not answer in time."""


class Late(WireError):
    """No whole message came in time. The time is over when this is raised, never before."""


def send(descriptor: int, document: Document) -> None:
    """Write one message as a whole. Raises WireError when the other side is gone."""
    body = json.dumps(document, separators=(",", ":")).encode()
    data = memoryview(_LENGTH.pack(len(body)) + body)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError as error:
        raise WireError(f"cannot send: {error.strerror}") from error


def receive(descriptor: int, *, timeout_s: float | None = None) -> Document | None:
    """The next message; None at a clean end of the stream.

    Raises Late for a message that is not there in time, WireError for one that is cut off,
    too long or no JSON object.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    head = _read(descriptor, _LENGTH.size, deadline)
    if not head:
        return None
    (length,) = _LENGTH.unpack(head) if len(head) == _LENGTH.size else (MAX_MESSAGE_BYTES + 1,)
    if length > MAX_MESSAGE_BYTES:
        raise WireError(
            f"a message of {length} bytes, or cut off; at most {MAX_MESSAGE_BYTES} are accepted"
        )
    body = _read(descriptor, length, deadline)
    if len(body) < length:
        raise WireError(f"the stream ended after {len(body)} of {length} bytes of a message")
    try:
        document = json.loads(body)
    except ValueError as error:
        raise WireError(f"a message is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise WireError("a message is not a JSON object")
    return document


def _read(descriptor: int, length: int, deadline: float | None) -> bytes:
    """Up to `length` bytes, fewer only at the stream's end."""
    data = bytearray()
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    while len(data) < length:
        # Rounded up, so that the wait ends at the deadline or after it.
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not waiting.poll(None if left_s is None else math.ceil(left_s * 1000)):
            raise Late("no answer in time")
        try:
            part = os.read(descriptor, min(length - len(data), 1 << 20))
        except OSError as error:
            raise WireError(f"cannot receive: {error.strerror}") from error
        if not part:
            break
        data += part
    return bytes(data)
