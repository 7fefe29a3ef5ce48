"""Compiled kernels and other blobs by content: a directory of files named by the
SHA-256 of their bytes.

A file appears whole or not at all (temporary file, fsync, rename, fsync of the folder)
and is checked against its name when read.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from tuner.errors import TunerError, UsageError

TEMPORARY = ".partial-"
DIGEST = re.compile(r"[0-9a-f]{64}")


class ArtifactError(TunerError):
    """The store's directory cannot be written or read: permissions, a full disk, a failing one."""

    code = "artifact_store"


class ArtifactMissing(TunerError):
    """The store holds no such artifact. Its text and that of `ArtifactCorrupt` go to
    clients, so they name no folder."""

    code = "artifact_missing"


class ArtifactCorrupt(TunerError):
    """The bytes on disk are not those the name promises; they must not be loaded."""

    code = "artifact_corrupt"


class ArtifactStore:
    """Safe for several processes at once: equal names hold equal bytes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def put(self, data: bytes) -> str:
        """Stores `data` durably; its SHA-256 in hex. Known bytes are not written again.

        Raises ArtifactError when they cannot be written, leaving no partial file.
        """
        digest = hashlib.sha256(data).hexdigest()
        file = self._file(digest)
        if self._holds(file, digest):
            return digest
        with self._reported(f"writing {len(data)} bytes"):
            file.parent.mkdir(parents=True, exist_ok=True)
            self._write(file, data)
        return digest

    def put_file(self, path: Path) -> str:
        """Stores the bytes of a file, as `put`."""
        with self._reported(f"reading {path}"):
            data = path.read_bytes()
        return self.put(data)

    def get(self, digest: str) -> bytes:
        """The bytes. Raises ArtifactMissing, or ArtifactCorrupt when they do not hash
        to their name."""
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
        """The file that holds the bytes, unchecked: for serving ranges of it, or after
        `verify`. Raises ArtifactMissing."""
        file = self._file(digest)
        if not file.is_file():
            raise ArtifactMissing(
                f"artifact {digest} is not in the store; restore it from a backup, or tune its "
                f"workload again"
            )
        return file

    def verify(self, digest: str) -> Path:
        """The file, after its bytes were checked. Raises ArtifactMissing or ArtifactCorrupt."""
        self.get(digest)
        return self._file(digest)

    def exists(self, digest: str) -> bool:
        return self._file(digest).is_file()

    def digests(self) -> Iterator[str]:
        """Every artifact in the store, in no order."""
        for file in self.directory.glob("??/*"):
            if DIGEST.fullmatch(file.name):
                yield file.name

    def delete(self, digests: Iterable[str], *, before: datetime) -> None:
        """Deletes those that were last put before `before`; whoever put one since then
        is about to refer to it, or does.

        One that cannot be deleted keeps no other: ArtifactError, at the end, is about
        the last of them.
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

    def _file(self, digest: str) -> Path:
        if not DIGEST.fullmatch(digest):
            raise UsageError(
                f"{digest[:80]!r} is not an artifact's name; it is 64 hexadecimal digits of "
                f"a SHA-256"
            )
        return self.directory / digest[:2] / digest

    def _holds(self, file: Path, digest: str) -> bool:
        """Whether the file is there and sound; a corrupt one is written anew."""
        try:
            with _locked(file, fcntl.LOCK_SH) as stream:
                os.utime(stream.fileno())  # young again, so that `delete` leaves it
                return hashlib.sha256(stream.read()).hexdigest() == digest
        except OSError:
            return False

    def _write(self, file: Path, data: bytes) -> None:
        descriptor, name = tempfile.mkstemp(prefix=TEMPORARY, dir=file.parent)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.chmod(0o644)
            temporary.replace(file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _reported(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            raise ArtifactError(
                f"artifact store {self.directory}: {what}: {reason}; free space or name a "
                f"writable folder"
            ) from error


@contextlib.contextmanager
def _locked(file: Path, kind: int) -> Iterator[BinaryIO]:
    """The open file under a lock, by which putting known bytes and deleting them
    exclude each other.

    Raises FileNotFoundError when it was deleted or replaced while the lock was waited for.
    """
    with file.open("rb") as stream:
        fcntl.flock(stream, kind)
        if not os.path.samestat(os.fstat(stream.fileno()), file.stat()):
            raise FileNotFoundError(f"{file} is another file by now")
        yield stream
