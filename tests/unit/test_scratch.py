"""Folders of temporary files: gone soon after the process that made them, however it ended."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.scratch import COMMON, NoRoom, temporary_folder

ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import signal, sys
from tuner.scratch import temporary_folder
with temporary_folder("tuner-held-") as folder:
    print(folder, flush=True)
    signal.pause()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process with a folder that is older than a minute."""
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, env=environment
    )
    yield process
    process.kill()
    process.communicate()


def test_the_next_process_removes_what_a_killed_process_left(
    holder: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert holder.stdout is not None
    folder = Path(holder.stdout.readline().strip())
    (folder / "file").write_text("content")
    other = tmp_path / "tuner-other"
    other.mkdir()
    past_s = time.time() - 3600
    for path in (folder, other):
        os.utime(path, (past_s, past_s))
    with temporary_folder("tuner-held-") as mine:
        assert folder.is_dir() and mine.is_dir()  # its process lives
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with temporary_folder("tuner-held-") as mine:
        assert not folder.exists() and mine.is_dir() and other.is_dir()
    assert not mine.exists()


def test_what_is_made_rarely_is_removed_with_what_is_made_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left, fresh = tmp_path / f"{COMMON}rare-a", tmp_path / f"{COMMON}rare-b"
    for folder in (left, fresh):
        folder.mkdir()
    os.utime(left, (1, 1))
    with temporary_folder(f"{COMMON}often-"):
        assert not left.exists() and fresh.is_dir()


def test_a_full_disk_has_its_way_out() -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    words = "No space left on device; free space, or name another folder with TMPDIR"
    with pytest.raises(NoRoom, match=words), temporary_folder("tuner-full-") as folder:
        raise full
    assert not folder.exists()
    with pytest.raises(IsADirectoryError), temporary_folder("tuner-full-") as folder:
        folder.read_bytes()
