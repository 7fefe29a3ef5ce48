"""The artifact store: bytes come back as they were or not at all, and nothing half-written stays."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tuner.errors import UsageError
from tuner.export.artifacts import ArtifactCorrupt, ArtifactError, ArtifactMissing, ArtifactStore

DATA = b"\x7fELF" + bytes(range(256)) * 40


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "artifacts")


def files(store: ArtifactStore) -> list[str]:
    return sorted(file.name for file in store.directory.rglob("*") if file.is_file())


def test_bytes_come_back(store: ArtifactStore, tmp_path: Path) -> None:
    digest = store.put(DATA)
    assert digest == hashlib.sha256(DATA).hexdigest()
    assert store.get(digest) == DATA == store.path(digest).read_bytes() == store.verify(digest).read_bytes()
    assert store.exists(digest) and not store.exists("0" * 64)
    assert store.put(DATA) == digest and files(store) == [digest] == list(store.digests())
    (tmp_path / "file").write_bytes(b"")
    assert store.get(store.put_file(tmp_path / "file")) == b""


def test_corruption_is_found_and_healed_by_storing_again(store: ArtifactStore) -> None:
    digest = store.put(DATA)
    store.path(digest).write_bytes(DATA[:-1] + b"?")
    with pytest.raises(ArtifactCorrupt, match="do not match its name"):
        store.get(digest)
    store.put(DATA)
    assert store.get(digest) == DATA


def test_missing_and_misnamed(store: ArtifactStore) -> None:
    with pytest.raises(ArtifactMissing, match="is not in"):
        store.get("0" * 64)
    for name in ("../../etc/passwd", "A" * 64, "0" * 63, ""):
        with pytest.raises(UsageError, match="64 hexadecimal digits"):
            store.path(name)


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from tuner.export.artifacts import ArtifactError, ArtifactStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    ArtifactStore(Path(sys.argv[1])).put(bytes(5000))
except ArtifactError as error:
    print(error)
"""


def test_full_disk_leaves_no_partial_file(store: ArtifactStore) -> None:
    # A limit on the size of files stops the write where a full disk would.
    arguments = [sys.executable, "-B", "-c", FULL_DISK, str(store.directory)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    assert os.strerror(errno.EFBIG) in done.stdout and "free space" in done.stdout
    assert store.directory.is_dir() and files(store) == []


def test_unwritable_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ArtifactError, match="name a writable folder"):
        ArtifactStore(tmp_path / "file" / "artifacts").put(DATA)


def test_only_old_and_unreferenced_files_are_deleted(store: ArtifactStore) -> None:
    live, old, young = store.put(b"live"), store.put(b"old"), store.put(b"young")
    partial = store.path(old).with_name(".partial-x")
    partial.write_bytes(b"left by a crash")
    for file in (store.path(live), store.path(old), partial):
        os.utime(file, (1, 1))
    assert store.delete_unreferenced({live}) == (old,)
    assert files(store) == sorted([live, young])


def test_concurrent_writers_of_the_same_bytes(store: ArtifactStore) -> None:
    threads = [threading.Thread(target=store.put, args=(DATA,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert files(store) == [hashlib.sha256(DATA).hexdigest()]
