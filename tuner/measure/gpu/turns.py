"""Turns on a device: what is timed there and what a caller has run never overlap."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

from tuner.runtime.cuda_driver import VISIBLE

SLICE = "MIG-"  # begins the names of slices
UNSAFE = str.maketrans(":/", "--")  # of a place on the bus, in a file's name


@contextmanager
def turn(facts: Mapping[str, int | str]) -> Iterator[None]:
    """Have the device of these facts alone, among this user's processes, for the block.

    Slices of one GPU are devices of their own. The system ends the turn of a process
    that dies. Raises OSError where the folder for temporary files is not writable.
    """
    named = os.environ.get(VISIBLE, "")
    device = f"{facts['pci']}-{named}" if named.startswith(SLICE) else str(facts["pci"])
    name = f"tuner-{os.getuid()}-gpu-{device.translate(UNSAFE)}.lock"
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(Path(tempfile.gettempdir()) / name, flags, 0o600)
    try:
        flock(descriptor, LOCK_EX)
        yield
    finally:
        os.close(descriptor)
