"""The artifact store: bytes come back as they were or not at all, and nothing
half-written stays."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import UsageError
from tuner.export.artifacts import (
    INCOMING,
    TEMPORARY,
    ArtifactCorrupt,
    ArtifactError,
    ArtifactMissing,
    ArtifactStore,
)

DATA = b"\x7fELF" + bytes(range(256)) * 40


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "artifacts")


def files(store: ArtifactStore) -> list[str]:
    return sorted(file.name for file in store.directory.rglob("*") if file.is_file())


def incoming_folders(store: ArtifactStore) -> list[Path]:
    return list(store.directory.glob(f"{INCOMING}*"))


def test_bytes_come_back(store: ArtifactStore, tmp_path: Path) -> None:
    digest = store.put(DATA)
    assert digest == hashlib.sha256(DATA).hexdigest()
    assert (
        store.get(digest)
        == DATA
        == store.path(digest).read_bytes()
        == store.verify(digest).read_bytes()
    )
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
store = ArtifactStore(Path(sys.argv[1]))
try:
    if sys.argv[2] == "whole":
        store.put(bytes(5000))
    with store.receiving() as incoming:
        for _ in range(5):
            incoming.write(bytes(1000))
except ArtifactError as error:
    print(error)
"""


@pytest.mark.parametrize("how", ["whole", "in parts"])
def test_full_disk_leaves_no_partial_file(store: ArtifactStore, how: str) -> None:
    # A limit on the size of files stops the write where a full disk would.
    arguments = [sys.executable, "-B", "-c", FULL_DISK, str(store.directory), how]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    assert os.strerror(errno.EFBIG) in done.stdout and "free space" in done.stdout
    assert store.directory.is_dir() and not files(store) and not incoming_folders(store)


def test_unwritable_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ArtifactError, match="name a writable folder"):
        ArtifactStore(tmp_path / "file" / "artifacts").put(DATA)


AN_HOUR_AGO = datetime.now(UTC) - timedelta(hours=1)


def test_only_those_named_that_were_not_put_lately_are_deleted(store: ArtifactStore) -> None:
    other, old, young, again = (store.put(data) for data in (b"other", b"old", b"young", b"again"))
    for digest in (other, old, again):
        os.utime(store.path(digest), (1, 1))
    store.put(b"again")
    store.delete([old, young, again, "0" * 64], before=AN_HOUR_AGO)
    assert files(store) == sorted([other, young, again])


def test_bytes_put_while_they_are_deleted_are_there(store: ArtifactStore) -> None:
    """Deleting first: the put finds the file gone and writes it. Putting first: the
    deletion finds the file young."""
    file = store.path(store.put(DATA))
    with ThreadPoolExecutor(1) as beside:
        with file.open("rb") as locked:
            fcntl.flock(locked, fcntl.LOCK_EX)
            put = beside.submit(store.put, DATA)
            assert_waits(put)
            file.unlink()
        assert store.get(put.result(timeout=30)) == DATA
        os.utime(file, (1, 1))
        with file.open("rb") as locked:
            fcntl.flock(locked, fcntl.LOCK_SH)
            deleted = beside.submit(store.delete, [file.name], before=AN_HOUR_AGO)
            assert_waits(deleted)
            os.utime(file)
        deleted.result(timeout=30)
        assert store.get(file.name) == DATA


def test_what_a_killed_process_has_half_written_is_removed_later(store: ArtifactStore) -> None:
    file = store.path(store.put(DATA))
    old, fresh = (file.parent / f"{TEMPORARY}{name}" for name in ("old", "fresh"))
    for path in (old, fresh):
        path.write_bytes(DATA[:100])
    for path in (old, file):
        os.utime(path, (1, 1))
    store.remove_partials()
    assert files(store) == sorted([fresh.name, file.name])


def test_staged_bytes_stay_only_where_they_are_kept(store: ArtifactStore) -> None:
    with pytest.raises(KeyError), store.staged(b"refused"):
        raise KeyError
    with store.staged(b"forgotten"):
        pass
    assert files(store) == []
    with store.staged(DATA) as keep:
        assert not list(store.digests())
        assert store.get(keep()) == DATA
    with store.staged(DATA) as keep:  # which are there
        assert keep() == hashlib.sha256(DATA).hexdigest()
    assert store.get(hashlib.sha256(DATA).hexdigest()) == DATA


def test_bytes_that_come_in_parts_stay_only_where_they_are_kept(store: ArtifactStore) -> None:
    digest = hashlib.sha256(DATA).hexdigest()
    with pytest.raises(KeyError), store.receiving() as incoming:
        incoming.write(b"refused")
        raise KeyError
    with store.receiving() as incoming:
        incoming.write(b"forgotten")
        incoming.flushed()
    assert not files(store) and not incoming_folders(store)
    for _ in range(2):  # the second time they are there
        with store.receiving() as incoming:
            incoming.write(DATA[:100])
            incoming.write(DATA[100:])
            keep = incoming.flushed()
            assert (keep(), incoming.digest, incoming.size_bytes) == (digest, digest, len(DATA))
        assert store.get(digest) == DATA and files(store) == [digest]
        assert incoming_folders(store) == []


@pytest.mark.parametrize("who", ["the next one", "an orchestrator"])
def test_what_a_killed_process_was_receiving_is_removed(store: ArtifactStore, who: str) -> None:
    left = store.directory / f"{INCOMING}left"
    left.mkdir(parents=True)
    (left / "bytes").write_bytes(DATA)
    os.utime(left, (1, 1))
    with contextlib.ExitStack() as mine:
        if who == "the next one":
            mine.enter_context(store.receiving()).write(DATA)
        else:
            store.remove_partials()
        assert not left.exists()


def assert_waits(work: Future[Any]) -> None:
    with pytest.raises(TimeoutError):
        work.result(timeout=0.3)


def test_concurrent_writers_of_the_same_bytes(store: ArtifactStore) -> None:
    threads = [threading.Thread(target=store.put, args=(DATA,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert files(store) == [hashlib.sha256(DATA).hexdigest()]
