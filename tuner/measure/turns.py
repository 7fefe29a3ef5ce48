"""Turns on what has a name: of this user's processes, one at a time has it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

_UNSAFE = str.maketrans(":/", "--")  # in a file's name


@contextmanager
def turn(name: str) -> Iterator[None]:
    """Have what is named so alone for the block; waits until nobody else has it.

    The system ends the turn of a process that dies. Raises OSError where the folder for
    temporary files is not writable.
    """
    file = f"tuner-{os.getuid()}-{name.translate(_UNSAFE)}.lock"
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(Path(tempfile.gettempdir()) / file, flags, 0o600)
    try:
        flock(descriptor, LOCK_EX)
        yield
    finally:
        os.close(descriptor)
