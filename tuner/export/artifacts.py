"""Content-addressed store of compiled kernels and other blobs.

It is a directory of files named by the SHA-256 of their bytes. A file appears whole or
not at all (temporary file, fsync, rename, fsync of the folder). Its bytes are checked
against its name when they are read.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from io import BufferedReader, FileIO
from pathlib import Path

from tuner.errors import TunerError, UsageError
from tuner.scratch import remove_leftovers, temporary_folder

TEMPORARY = ".partial-"
INCOMING = ".incoming-"  # begins the names of folders of bytes that come in parts
_ABANDONED_S = 3600.0  # since a temporary file was last written to
DIGEST = re.compile(r"[0-9a-f]{64}")


class ArtifactError(TunerError):
    """The store's directory cannot be read or written: permissions, or the disk."""

    code = "artifact_store"


class ArtifactMissing(TunerError):
    """The store has no such artifact.

    The message goes to clients, as that of `ArtifactCorrupt`, so it names no folder.
    """

    code = "artifact_missing"


class ArtifactCorrupt(TunerError):
    """The bytes on disk do not match their name. They must not be loaded."""

    code = "artifact_corrupt"


class ArtifactStore:
    """A store in one directory. Several processes may use it at once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def put(self, data: bytes) -> str:
        """Stores `data` durably and returns its SHA-256 in hex.

        Bytes that the store already has are not written again. Raises ArtifactError, and
        then leaves no partial file.
        """
        with self.staged(data) as keep:
            return keep()

    @contextlib.contextmanager
    def staged(self, data: bytes) -> Iterator[Callable[[], str]]:
        """Writes `data` durably beside its place, for the block.

        What it yields moves the bytes there, which takes a moment however many they are, and
        returns their SHA-256 in hex. Without that call nothing stays. So a transaction that
        others wait for can put large bytes. Both raise ArtifactError.
        """
        digest = hashlib.sha256(data).hexdigest()
        file = self._file(digest)
        if self._holds(file, digest):
            yield lambda: digest
            return
        with self._reported(f"writing {len(data)} bytes"):
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary = _written(file.parent, data)
        try:
            yield partial(self._place, temporary, file)
        finally:
            temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def receiving(self) -> Iterator[Incoming]:
        """An artifact that comes in parts, for the block, after which nothing stays of one that
        was not kept.

        Its file lies in the store's own folder: keeping it copies nothing. Raises ArtifactError.
        """
        with contextlib.ExitStack() as stack:
            with self._reported("receiving bytes"):
                self.directory.mkdir(parents=True, exist_ok=True)
                folder = stack.enter_context(temporary_folder(INCOMING, self.directory))
                file = folder / "bytes"
                stream = stack.enter_context(file.open("wb", buffering=0))
            yield Incoming(self, file, stream)

    def put_file(self, path: Path) -> str:
        """Stores the bytes of a file, as `put` does."""
        with self._reported(f"reading {path}"):
            data = path.read_bytes()
        return self.put(data)

    def get(self, digest: str) -> bytes:
        """The bytes. Raises ArtifactMissing or ArtifactCorrupt."""
        file = self.path(digest)
        with self._reported(f"reading {file}"):
            data = file.read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            raise ArtifactCorrupt(
                f"artifact {digest}: its bytes do not match its name; delete the file and tune "
                f"again, or restore a backup"
            )
        return data

    def path(self, digest: str) -> Path:
        """The file with the bytes, which are not checked. Raises ArtifactMissing.

        For serving ranges of it, or after `verify`.
        """
        file = self._file(digest)
        if not file.is_file():
            raise ArtifactMissing(
                f"artifact {digest} is not in the store; restore it from a backup, or tune its "
                f"workload again"
            )
        return file

    def verify(self, digest: str) -> Path:
        """The file, with its bytes checked. Raises ArtifactMissing or ArtifactCorrupt."""
        self.get(digest)
        return self._file(digest)

    def exists(self, digest: str) -> bool:
        """Whether the store has the artifact."""
        return self._file(digest).is_file()

    def digests(self) -> Iterator[str]:
        """The digests of all artifacts, in no order."""
        for file in self.directory.glob("??/*"):
            if DIGEST.fullmatch(file.name):
                yield file.name

    def delete(self, digests: Iterable[str], *, before: datetime) -> None:
        """Deletes the artifacts that were last put before `before`.

        One that was put later is in use, or about to be. All others are deleted even if
        one cannot be; ArtifactError, raised at the end, is about the last failure.
        """
        failed: OSError | None = None
        for digest in digests:
            file = self._file(digest)
            try:
                with _locked(file, fcntl.LOCK_EX) as stream:
                    if os.fstat(stream.fileno()).st_mtime < before.timestamp():
                        file.unlink()
            except FileNotFoundError:
                pass
            except OSError as error:
                failed = error
        if failed is not None:
            with self._reported("deleting"):
                raise failed

    def remove_partials(self) -> None:
        """Removes what processes that were killed have left half written, an hour ago or more,
        and what they were receiving.
        """
        with contextlib.suppress(OSError):
            remove_leftovers(INCOMING, self.directory)
        for partial_file in self.directory.glob(f"??/{TEMPORARY}*"):
            with contextlib.suppress(OSError):  # another process removes or finishes it
                if time.time() - partial_file.stat().st_mtime > _ABANDONED_S:
                    partial_file.unlink()

    def _file(self, digest: str) -> Path:
        """The path of the artifact. Raises UsageError for what is no SHA-256."""
        if not DIGEST.fullmatch(digest):
            raise UsageError(
                f"{digest[:80]!r} is not an artifact's name; it is 64 hexadecimal digits of "
                f"a SHA-256"
            )
        return self.directory / digest[:2] / digest

    def _holds(self, file: Path, digest: str) -> bool:
        """Whether the file exists with the right bytes; marks it as put now."""
        try:
            with _locked(file, fcntl.LOCK_SH) as stream:
                os.utime(stream.fileno())  # young again, so that `delete` leaves it
                return hashlib.file_digest(stream, "sha256").hexdigest() == digest
        except OSError:
            return False

    def _place(self, temporary: Path, file: Path) -> str:
        """Gives written bytes the name of their digest, and returns it."""
        with self._reported("naming an artifact"):
            temporary.replace(file)
            folder = os.open(file.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        return file.name

    @contextlib.contextmanager
    def _reported(self, what: str) -> Iterator[None]:
        """Turns an OSError of `what` into an ArtifactError."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            raise ArtifactError(
                f"artifact store {self.directory}: {what}: {reason}; free space or name a "
                f"writable folder"
            ) from error


class Incoming:
    """Bytes that come in parts, on their way into a store. `ArtifactStore.receiving` makes it.

    Not thread-safe.
    """

    def __init__(self, store: ArtifactStore, file: Path, stream: FileIO) -> None:
        self._store, self._file, self._stream = store, file, stream
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    @property
    def digest(self) -> str:
        """The SHA-256, in hex, of what was written."""
        return self._hash.hexdigest()

    def write(self, part: bytes) -> None:
        """Appends a part. Raises ArtifactError."""
        self._hash.update(part)
        self.size_bytes += len(part)
        left = memoryview(part)
        with self._store._reported(f"writing {self.size_bytes} bytes"):
            while left:
                left = left[os.write(self._stream.fileno(), left) :]

    def flushed(self) -> Callable[[], str]:
        """Brings the bytes to the disk. What it returns does as what `ArtifactStore.staged`
        yields. Both raise ArtifactError.
        """
        digest = self.digest
        place = self._store._file(digest)
        if self._store._holds(place, digest):
            return lambda: digest
        with self._store._reported(f"writing {self.size_bytes} bytes"):
            os.fchmod(self._stream.fileno(), 0o644)
            os.fsync(self._stream.fileno())
            place.parent.mkdir(parents=True, exist_ok=True)
        return partial(self._store._place, self._file, place)


def _written(folder: Path, data: bytes) -> Path:
    """A new temporary file with the bytes, which are on disk. Raises OSError."""
    descriptor, name = tempfile.mkstemp(prefix=TEMPORARY, dir=folder)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


@contextlib.contextmanager
def _locked(file: Path, kind: int) -> Iterator[BufferedReader]:
    """The open file under a lock, so that putting and deleting it exclude each other.

    `kind` is one of `fcntl.LOCK_SH` and `fcntl.LOCK_EX`. Raises FileNotFoundError where
    the file was deleted or replaced before the lock was free.
    """
    with file.open("rb") as stream:
        fcntl.flock(stream, kind)
        if not os.path.samestat(os.fstat(stream.fileno()), file.stat()):
            raise FileNotFoundError(f"{file} is another file by now")
        yield stream
