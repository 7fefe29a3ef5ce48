"""A file system of a few megabytes for tests that fill it. It needs root; without,
those tests are skipped, saying so."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

FILLER = "filler"


@contextmanager
def small_disk(folder: Path, *, megabytes: int, owner: str | None = None) -> Iterator[Path]:
    """Mounts a tmpfs of this size at `folder` for the block."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a full disk needs a file system of its own, and only root can mount one")
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        if owner is not None:
            shutil.chown(folder, owner)
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], timeout=20, check=False)


def fill_up(folder: Path, *, leave_bytes: int) -> None:
    """Takes all space but `leave_bytes`; others may take some meanwhile."""
    with (folder / FILLER).open("wb", buffering=0) as filler, suppress(OSError):
        while (free := shutil.disk_usage(folder).free - leave_bytes) > 0:
            filler.write(bytes(min(free, 1 << 20)))


def empty(folder: Path) -> None:
    (folder / FILLER).unlink()
