"""Winners are stored beside what comes next, one at a time, and none is forgotten."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tuner.db.errors import IncumbentChanged
from tuner.workers.jobs.settlement import Settle, Settlement


@pytest.fixture
def settlement() -> Iterator[Settlement]:
    with ThreadPoolExecutor(1) as background:
        yield Settlement(background)


def test_a_winner_is_stored_while_the_job_goes_on(settlement: Settlement) -> None:
    raced, ended = threading.Event(), list[str]()

    def store() -> str:
        assert raced.wait(10.0)  # the job has gone on meanwhile
        return "k1"

    with settlement:
        settlement.begin(store, lambda result: ended.append(result()))
        assert ended == []
        raced.set()
        settlement.end()
        assert ended == ["k1"]
        settlement.end()
        assert ended == ["k1"]  # once


def test_the_next_one_waits_for_the_one_before(settlement: Settlement) -> None:
    ended = list[str]()
    with settlement:
        for kernel in ("k1", "k2"):
            settlement.begin(partial(str, kernel), lambda result: ended.append(result()))
        assert ended == ["k1"]
    assert ended == ["k1", "k2"]


def test_what_storing_raises_comes_to_whoever_ends_it(settlement: Settlement) -> None:
    def store() -> str:
        raise IncumbentChanged("another job was faster")

    changed = list[str]()

    def note(result: Settle) -> None:
        with pytest.raises(IncumbentChanged):
            result()
        changed.append("task")

    with settlement:
        settlement.begin(store, note)
    assert changed == ["task"]


def test_a_failure_of_the_next_kernel_leaves_the_winner_stored(settlement: Settlement) -> None:
    ended = list[str]()
    with pytest.raises(RuntimeError, match="lost"), settlement:
        settlement.begin(lambda: "k1", lambda result: ended.append(result()))
        raise RuntimeError("the fleet was lost")
    assert ended == ["k1"]
