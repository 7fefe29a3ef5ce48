"""Sends built candidates between machines that share no storage.

Their bytes are sent once and stored as files on the receiving machine. On one machine a
library is just its path.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tuner.workers.fleet.messages import Contestant, Library

SUFFIXES = (".so", ".o", ".json")  # of the library, its object code and its stored schedule


def place(directory: Path, name: str, content: bytes) -> Path:
    """Writes a content-addressed file atomically."""
    path = directory / name
    if not path.exists():
        draft = directory / f".{name}.{os.getpid()}"
        try:
            draft.write_bytes(content)
            draft.rename(path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
    return path


def discard(library: Library) -> None:
    """Deletes the library's files, and their folder if it was theirs alone."""
    path = Path(library.path)
    for suffix in SUFFIXES:
        path.with_suffix(suffix).unlink(missing_ok=True)
    with suppress(OSError):
        path.parent.rmdir()


def packed(library: Library) -> Library:
    """The library with its bytes; deletes its files here."""
    path = Path(library.path)
    paths = {suffix: path.with_suffix(suffix) for suffix in SUFFIXES}
    files = {suffix: file.read_bytes() for suffix, file in paths.items() if file.exists()}
    discard(library)
    return replace(library, files=files)


def unpacked(library: Library, storage: Path) -> Library:
    """The library as files in `storage`, unchanged if it was not sent.

    Raises ValueError for bytes of another hash.
    """
    if not library.files:
        return library
    if hashlib.sha256(library.files[".so"]).hexdigest() != library.sha256:
        raise ValueError(f"library {library.sha256} came with other bytes")
    for suffix, content in library.files.items():
        place(storage, f"{library.sha256}{suffix}", content)
    return replace(library, path=str(storage / f"{library.sha256}.so"), files={})


def packed_contestant(contestant: Contestant) -> Contestant:
    return replace(contestant, content=Path(contestant.path).read_bytes())


@contextmanager
def unpacked_contestants(
    contestants: Sequence[Contestant], storage: Path
) -> Iterator[list[Contestant]]:
    """The contestants as files, for the block; those that were sent are in `storage`."""
    with TemporaryDirectory(dir=storage) as folder:
        yield [_unpacked_contestant(contestant, Path(folder)) for contestant in contestants]


def _unpacked_contestant(contestant: Contestant, folder: Path) -> Contestant:
    if not contestant.content:
        return contestant
    digest = hashlib.sha256(contestant.content).hexdigest()
    return replace(
        contestant, path=str(place(folder, f"{digest}.so", contestant.content)), content=b""
    )
