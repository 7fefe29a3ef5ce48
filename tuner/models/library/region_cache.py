"""Libraries of regions on disk, by what a region computes and for what it was tuned.

A library's file is named by the hash of its content, so a damaged one is seen, and put in
place by a rename, so a file is whole or not there. Its time is that of its last use: where files
take more than they may together, those that were not used for the longest time are removed.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from tuner.errors import TunerError
from tuner.version import __version__
from tuner.workload.workload import ModelNumerics

SCHEMA = 3
SYMBOL = "region_run"  # the function of a region's library
_RACE = "race.json"
_PAUSE_S = 0.1  # between two looks at a lock that another process has


class CacheDamaged(TunerError):
    """A kept library is not what was kept."""

    code = "artifact_corrupt"


class WaitIsOver(TunerError):
    """Nobody waits any more for a library that another process makes."""


@dataclass(frozen=True, kw_only=True)
class RaceResult:
    """Median seconds of a call of a region, by its library and by PyTorch."""

    library_s: float
    pytorch_s: float

    @property
    def is_faster(self) -> bool:
        """Whether the library is used: it is no slower."""
        return self.library_s <= self.pytorch_s


def region_key(
    graph: str, target: str, threads: int, numerics: ModelNumerics | None, max_error: float | None
) -> str:
    """The key of a library of a graph for a target, by the digest of the packed graph and the
    target's key."""
    document = {
        "schema": SCHEMA,
        "graph": graph,
        "target": target,
        "threads": threads,
        "numerics": numerics,
        "max_error": max_error,
        "version": __version__,
    }
    return sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def put(path: Path, content: bytes) -> None:
    """Writes a file as a whole or not at all, and its folder. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise


def mark_used(path: Path) -> None:
    """Notes the use of a file, as far as that can be."""
    with suppress(OSError):
        os.utime(path)


@dataclass(frozen=True, kw_only=True)
class RegionCache:
    """The libraries in a folder, which need not exist yet."""

    folder: Path
    most_bytes: int = 0  # of libraries and traces together; 0 keeps all

    def find(self, key: str) -> Path | None:
        """The library of a key; None where there is none.

        Raises CacheDamaged for one whose content is another than its name says, and
        OSError.
        """
        for path in sorted((self.folder / key).glob("*.so")):
            if sha256(path.read_bytes()).hexdigest() != path.stem:
                raise CacheDamaged(f"{path} is damaged and has to be made again")
            mark_used(path)
            return path
        return None

    def keep(self, key: str, library: bytes) -> Path:
        """Stores the library of a key in place of others, and of what processes that were killed
        have half written; removes what there is no more room for. Raises OSError."""
        path = self._put(key, f"{sha256(library).hexdigest()}.so", library)
        for other in (
            *path.parent.glob("*.so"),
            *path.parent.glob("*.partial"),
            path.parent / _RACE,
        ):
            if other != path:
                other.unlink(missing_ok=True)
        if self.most_bytes:
            self._make_room(path)
        return path

    def _make_room(self, newest: Path) -> None:
        """Removes what was not used for the longest time, and the newest library never.

        A library that a process has loaded stays there for it. Locks stay: others may hold them.
        """
        files = []
        for path in (*self.folder.glob("*/*.so"), *self.folder.glob("*/*.trace")):
            with suppress(OSError):  # another process has removed it
                status = path.stat()
                files.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self.most_bytes:
                break
            if path != newest:
                with suppress(OSError):
                    path.unlink()
                    total -= size
                    (path.parent / _RACE).unlink(missing_ok=True)

    def _put(self, key: str, name: str, content: bytes) -> Path:
        path = self.folder / key / name
        put(path, content)
        return path

    def discard(self, key: str) -> None:
        """Removes the library of a key, as far as that can be."""
        for path in (self.folder / key).glob("*.so"):
            with suppress(OSError):
                path.unlink()

    def note(self, key: str, race: RaceResult) -> None:
        """Keeps the last race of the library of a key, as far as that can be."""
        with suppress(OSError):
            self._put(key, _RACE, json.dumps(asdict(race)).encode())

    def race(self, key: str) -> RaceResult | None:
        """The last race of the library of a key; None where there was none."""
        try:
            document = json.loads((self.folder / key / _RACE).read_bytes())
            return RaceResult(
                library_s=float(document["library_s"]), pytorch_s=float(document["pytorch_s"])
            )
        except (OSError, ValueError, TypeError, KeyError):
            return None

    @contextmanager
    def lock(self, key: str, is_over: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Keeps other processes from making the same library meanwhile. Waits for one that does
        until `is_over`. Raises WaitIsOver and OSError."""
        folder = self.folder / key
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("wb") as file:
            while not _locked(file):
                if is_over():
                    raise WaitIsOver(f"{folder} is locked by another process")
                time.sleep(_PAUSE_S)
            yield


def _locked(file: BinaryIO) -> bool:
    """Whether this process has the lock of a file now, which the system lets go of where the
    process dies."""
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True
