"""A Ray node is watched by its processes: one that ended, reaped or not, is dead."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil

from tuner.workers.fleet.cluster import VITAL, _is_vital, _lives


def test_a_process_that_ended_does_not_live_whether_or_not_it_was_reaped() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    process = psutil.Process(child.pid)
    assert _lives(process) and not _is_vital(process)
    child.kill()
    deadline = time.monotonic() + 10
    while _lives(process):  # a zombie from now on
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.wait()
    assert not _lives(process) and not _is_vital(process)


def test_the_names_of_what_is_watched_are_whole() -> None:
    assert all(len(name) <= 15 for name in VITAL), "the kernel cuts longer ones"
