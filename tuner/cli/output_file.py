"""The file that a command writes: checked before the work, then written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tuner.errors import UsageError


def check_output(path: Path) -> None:
    """Raises UsageError for a path that cannot be written, so that no work is lost by it."""
    folder = path.parent
    with _refusing(path):
        if path.is_dir():
            raise UsageError(f"{path} cannot be written: it is a folder; name a file in it")
        if not folder.is_dir():
            raise UsageError(
                f"{path} cannot be written: {folder} is no folder; name a file in one that exists"
            )
        # A device or a pipe is written in place, a file by its folder.
        if not os.access(path if _in_place(path) else path.resolve().parent, os.W_OK):
            raise UsageError(f"{path} cannot be written: no permission; name a file elsewhere")


def write_output(path: Path, content: bytes) -> None:
    """Writes the whole file or none. Raises UsageError where it cannot be written."""
    with _refusing(path):
        if _in_place(path):
            path.write_bytes(content)
            return
        file = path.resolve()  # what a link names, not the link
        part = file.with_name(f".tuner-{os.getpid()}.part")
        try:
            part.write_bytes(content)
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)


def write_or_keep(path: Path, content: bytes) -> None:
    """Writes what took long to make.

    Where the file cannot be written, as on a full disk, the content goes to the folder of
    temporary files, and the UsageError names it.
    """
    try:
        write_output(path, content)
    except UsageError as error:
        kept = None
        with suppress(OSError):
            descriptor, kept = tempfile.mkstemp(prefix="tuner-", suffix=path.suffix)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        if kept is None:
            raise
        if Path(kept).stat().st_size < len(content):
            Path(kept).unlink()
            raise
        raise UsageError(f"{error}; until then it is in {kept}") from None


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}; name another file") from None


def _in_place(path: Path) -> bool:
    return path.exists() and not path.is_file()
