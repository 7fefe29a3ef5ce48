"""Threads of a pool where cores are wanted by others: shares that no worker begins, and
workers that wake on their caller's core."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tuner.runtime.loader import Library, aligned_empty

Make = Callable[..., Library]
TASKS = Path("/proc/self/task")
CALLS = 200
SETTLED_S = 0.05
PATIENCE_S = 5.0

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs two cores of Linux"
)


@pytest.fixture
def cores() -> Iterator[list[int]]:
    """The cores that this thread may use, which it gets back."""
    before = os.sched_getaffinity(0)
    yield sorted(before)
    os.sched_setaffinity(0, before)


def threads() -> set[int]:
    return {int(task.name) for task in TASKS.iterdir()}


def started(library: Library) -> int:
    """The number of the worker that the first call starts."""
    before = threads()
    doubles(library)
    time.sleep(SETTLED_S)  # it may begin late, and leave its place at once
    wait_until(lambda: len(threads() - before) == 1)
    (worker,) = threads() - before
    return worker


def wait_until(happened: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + PATIENCE_S
    while not happened() and time.monotonic() < ends_s:
        time.sleep(1e-3)


def doubles(library: Library) -> None:
    given, result = aligned_empty((1024,), "float32"), aligned_empty((1024,), "float32")
    given[:] = np.arange(1024)
    result[:] = np.nan
    library.call("do_parallel", [given, result])
    np.testing.assert_array_equal(result, 2 * given)


def test_a_share_that_no_worker_begins_is_done_by_the_caller(
    library: Make, cores: list[int]
) -> None:
    """The worker has a core only where nothing else wants it, and something always does."""
    loaded = library("parallel", threads=2)
    worker = started(loaded)
    os.sched_setaffinity(worker, cores[1:2])
    os.sched_setscheduler(worker, os.SCHED_IDLE, os.sched_param(0))
    os.sched_setaffinity(0, cores[:1])
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            os.sched_setaffinity(other.pid, cores[1:2])
            time.sleep(SETTLED_S)
            begun_s = time.monotonic()
            for _ in range(CALLS):
                doubles(loaded)
            took_s = time.monotonic() - begun_s
        finally:
            other.kill()
    assert took_s < 1.0, "as long as an idle thread waits for a busy core"


def test_a_worker_that_wakes_on_its_callers_core_leaves_its_place_to_a_new_thread(
    library: Make, cores: list[int]
) -> None:
    loaded = library("parallel", threads=2)
    others = threads()
    worker = started(loaded)
    os.sched_setaffinity(0, cores[:1])
    with suppress(ProcessLookupError):  # where it has left by now
        os.sched_setaffinity(worker, cores[:1])

    def has_left() -> bool:
        doubles(loaded)
        return worker not in threads()

    wait_until(has_left)  # not at once where it has just done so
    wait_until(lambda: len(threads() - others) == 1)
    (successor,) = threads() - others
    assert successor != worker
