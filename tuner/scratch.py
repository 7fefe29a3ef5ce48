"""Folders of temporary files that do not outlive their process for long.

A process that is killed leaves its folders behind. Each is locked while its process lives, and
the next one that makes such a folder removes those that nobody has locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tuner.errors import TunerError

# Folders that are named so are looked after together: some are made too rarely for the next of
# its own kind to remove it.
COMMON = "tuner-scratch-"
_NEW_S = 60.0  # a folder younger than that may be of a process that is about to lock it


class NoRoom(TunerError):
    """The disk for temporary files is full."""

    code = "no_room"


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A folder for the block, in the folder for temporary files or in another.

    The prefix must be one that only we use, as those are that begin with COMMON. Raises NoRoom
    where the block, or making the folder, finds the disk for temporary files full.
    """
    try:
        remove_leftovers(COMMON if prefix.startswith(COMMON) else prefix, parent)
        with tempfile.TemporaryDirectory(
            prefix=prefix, dir=parent, ignore_cleanup_errors=True
        ) as name:
            descriptor = hold(Path(name))
            try:
                yield Path(name)
            finally:
                os.close(descriptor)
    except OSError as error:
        if parent is None and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoRoom(
                f"no room for temporary files in {tempfile.gettempdir()}: {error.strerror}; free "
                f"space, or name another folder with TMPDIR"
            ) from error
        raise


def hold(folder: Path) -> int:
    """Locks a folder until the descriptor that it gives is closed, at the latest by the system."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with suppress(OSError):  # a network's file system may lock no folders: then none is removed
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def remove_leftovers(prefix: str, parent: Path | None = None) -> None:
    """Removes this user's folders of a prefix that killed processes have left."""
    with suppress(FileNotFoundError):
        for folder in _leftovers(prefix, parent or Path(tempfile.gettempdir())):
            shutil.rmtree(folder, ignore_errors=True)


def _leftovers(prefix: str, parent: Path) -> Iterator[Path]:
    """Those that nobody has locked, each under a lock of ours."""
    names = [entry.name for entry in os.scandir(parent) if entry.name.startswith(prefix)]
    for folder in (parent / name for name in names):
        with suppress(OSError):  # as where another process removes it too
            about = folder.lstat()
            if about.st_uid != os.getuid() or time.time() - about.st_mtime < _NEW_S:
                continue
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield folder
            finally:
                os.close(descriptor)
