"""Files beside a model: opened by name inside its folder, never through a link."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath

from tuner.models.errors import ModelRefused
from tuner.models.process import answer_of

_MODULE = "tuner.models.files.external_data"
_ENTRY = b"location"  # a key that each constant in another file has
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def with_neighbours(path: Path, content: bytes) -> bytes:
    """The model at `path` with the constants inside that it keeps in other files.

    Only files in the model's folder and below are read, none through a link. Raises
    ModelRefused naming the constant and the file.
    """
    if _ENTRY not in content:
        return content
    names = json.loads(answer_of(_MODULE, {"files": None}, content))
    if not names:
        return content
    with _opened(path.parent, names) as files:
        return answer_of(_MODULE, {"files": files}, content, files=tuple(files.values()))


@contextmanager
def _opened(folder: Path, names: Mapping[str, str]) -> Iterator[dict[str, int]]:
    """A descriptor by name; `names` has a constant of each file."""
    with ExitStack() as stack:
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, top)
        files = {}
        for name, constant in names.items():
            try:
                files[name] = _open_inside(top, name, stack)
            except OSError as error:
                raise ModelRefused(
                    f"constant {constant!r} lies in the file {name[:80]!r} beside the model, "
                    f"which {_reason(error)}"
                ) from error
        yield files


def _open_inside(top: int, name: str, stack: ExitStack) -> int:
    *folders, last = PurePosixPath(name).parts
    if PurePosixPath(name).is_absolute() or ".." in (*folders, last):
        raise OSError(errno.EXDEV, "outside")
    for folder in folders:
        top = os.open(folder, _PLAIN | os.O_DIRECTORY, dir_fd=top)
        stack.callback(os.close, top)
    descriptor = os.open(last, _PLAIN, dir_fd=top)
    stack.callback(os.close, descriptor)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EISDIR, "no file")
    return descriptor


def _reason(error: OSError) -> str:
    match error.errno:
        case errno.ENOENT:
            return "does not exist; put it there, or save the model with its data inside"
        case errno.ELOOP | errno.ENOTDIR | errno.EXDEV:
            return "is reached by a link or lies outside; copy the file there"
        case errno.EISDIR | errno.ENXIO:
            return "is no file with data"
        case _:
            return f"cannot be read: {error.strerror}"
