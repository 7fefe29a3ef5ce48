"""Runner processes kept by workload: used again, bounded in number and memory, ended in
the end. Real processes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from tuner.errors import UsageError
from tuner.measure.assignment import Assignment, Lane
from tuner.measure.runner import RunnerProcess
from tuner.workers.fleet.resident import Residents, resident_bytes
from tuner.workload.spec import parse_spec

pytestmark = pytest.mark.timeout(170)
CORE = max(os.sched_getaffinity(0))


def assignment(rows: int, *, threads: int = 1) -> Assignment:
    lane = Lane(name=f"cpu:{CORE}", cores=(CORE,))
    return Assignment(
        workload=parse_spec(f"softmax:M={rows},N=8"),
        lane=lane,
        threads=threads,
        isolation="process",
    )


@pytest.fixture
def first() -> Iterator[RunnerProcess]:
    process = RunnerProcess()
    yield process
    process.close()


@contextmanager
def stopped(process: RunnerProcess) -> Iterator[None]:
    """Whoever asks the process for anything in this block waits in vain."""
    stopped = psutil.Process(process.pid)
    stopped.suspend()
    try:
        yield
    finally:
        stopped.resume()


def test_a_workload_seen_before_finds_its_process_again(first: RunnerProcess) -> None:
    residents = Residents(first)
    try:
        a, b = residents.prepared("a", assignment(4)), residents.prepared("b", assignment(5))
        assert a is first and b is not first and a.pid != b.pid
        with stopped(a):
            assert residents.prepared("a", assignment(4)) is a
        assert residents.keys == ("b", "a")
    finally:
        residents.close()
    assert first.pid is None and b.pid is None


def test_the_longest_unused_makes_room(first: RunnerProcess) -> None:
    residents = Residents(first, most=2)
    try:
        residents.prepared("a", assignment(4))
        b = residents.prepared("b", assignment(5)).pid
        residents.prepared("a", assignment(4))
        c = residents.prepared("c", assignment(6))
        assert residents.keys == ("a", "c")
        assert b is not None and c.pid == b  # nobody waits for another process to start
    finally:
        residents.close()


def test_memory_bounds_what_is_kept(first: RunnerProcess) -> None:
    residents = Residents(first, most_bytes=1)
    try:
        residents.prepared("a", assignment(4))
        assert resident_bytes(first) > 1
        residents.prepared("b", assignment(5))
        assert residents.keys == ("b",)
    finally:
        residents.close()


def test_what_cannot_be_prepared_is_not_held(first: RunnerProcess) -> None:
    residents = Residents(first)
    try:
        with pytest.raises(UsageError, match="2 threads"):
            residents.prepared("a", assignment(4, threads=2))
        assert residents.keys == ()
        assert residents.prepared("b", assignment(5)) is first
    finally:
        residents.close()


def test_a_workload_prepared_ahead_is_there_at_once_and_disturbs_no_other(
    first: RunnerProcess,
) -> None:
    """Prepared by another thread, on other cores, while the first one is at hand for
    measuring and calibrating."""
    made: list[RunnerProcess] = []

    def make() -> RunnerProcess:
        made.append(RunnerProcess())
        return made[-1]

    residents = Residents(first, make=make)
    try:
        a = residents.prepared("a", assignment(4))
        thread = threading.Thread(
            target=residents.prefetch, args=("b", assignment(5), (min(os.sched_getaffinity(0)),))
        )
        thread.start()
        assert residents.prepared("a", assignment(4)) is a
        with residents.at_hand() as process:
            assert process is a and len(process.calibrate((CORE,))) == 1
        thread.join()
        (b,) = made
        with stopped(b):
            assert residents.prepared("b", assignment(5)) is b
        assert psutil.Process(b.pid).cpu_affinity() == [CORE]
    finally:
        residents.close()


def test_who_measures_waits_for_what_is_being_prepared(first: RunnerProcess) -> None:
    residents = Residents(first)
    try:
        thread = threading.Thread(target=residents.prefetch, args=("a", assignment(4), ()))
        thread.start()
        while not residents.keys:
            time.sleep(0.001)
        with residents.at_hand() as process:
            assert process is None  # it is busy preparing
        assert residents.prepared("a", assignment(4)) is first
        thread.join()
    finally:
        residents.close()


def test_what_could_not_be_prepared_ahead_says_why_when_it_is_wanted(first: RunnerProcess) -> None:
    residents = Residents(first)
    try:
        residents.prefetch("a", assignment(4, threads=2), ())
        assert residents.keys == ()
        with pytest.raises(UsageError, match="2 threads"):
            residents.prepared("a", assignment(4, threads=2))
        with residents.at_hand() as process:
            assert process is first
    finally:
        residents.close()


def test_room_is_never_made_of_what_is_measured_with(first: RunnerProcess) -> None:
    residents = Residents(first, most=1)
    try:
        a = residents.prepared("a", assignment(4))
        residents.prefetch("b", assignment(5), ())
        assert a.pid is not None and psutil.pid_exists(a.pid) and residents.keys == ("a", "b")
        residents.prepared("b", assignment(5))
        residents.prefetch("c", assignment(6), ())
        assert residents.keys == ("b", "c")
    finally:
        residents.close()
