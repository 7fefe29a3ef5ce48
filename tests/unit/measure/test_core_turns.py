"""Turns on cores between runs of tuner on one machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tuner.measure import core_turns
from tuner.measure.core_turns import CORES, ENTRANCE, CoreTurns


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Folders of four cores, as the system has them."""
    for core in range(4):
        (tmp_path / f"cpu{core}" / ENTRANCE).mkdir(parents=True)
    return tmp_path


@contextmanager
def another(root: Path, *cores: int, alone: bool) -> Iterator[threading.Event]:
    """Another run that asks for these cores; the event is set while it has them."""
    has, over = threading.Event(), threading.Event()

    def run() -> None:
        with CoreTurns(root=root).turn(cores, alone=alone):
            has.set()
            over.wait(30)
        has.clear()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            yield has
        finally:
            over.set()
            running.result()


@pytest.mark.parametrize(
    ("first", "second", "waits"),
    [(True, True, True), (True, False, True), (False, True, True), (False, False, False)],
)
def test_what_is_alone_overlaps_nothing(root: Path, first: bool, second: bool, waits: bool) -> None:
    with ExitStack() as others:  # another that waits ends after the turn that it waits for
        with CoreTurns(root=root).turn([1, 2], alone=first) as waited_s:
            assert waited_s < 1.0
            has = others.enter_context(another(root, 2, 3, alone=second))
            assert has.wait(0.05) is not waits
        assert has.wait(5)
    with CoreTurns(root=root).turn([2], alone=True):  # nobody has it any more
        pass


def test_other_cores_are_not_waited_for(root: Path) -> None:
    with (
        CoreTurns(root=root).turn([0], alone=True),
        another(root, 1, alone=True) as has,
    ):
        assert has.wait(5)


def test_who_waits_is_next(root: Path) -> None:
    """A run whose candidates follow each other closely leaves every second turn to the other."""
    order: list[str] = []

    def take(name: str) -> None:
        turns = CoreTurns(root=root)
        for _ in range(8):
            with turns.turn([1], alone=True):
                order.append(name)
                time.sleep(0.01)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(take, "ab"))
    assert sum(left != right for left, right in pairwise(order)) >= 6  # it would be 1


def test_a_stopped_holder_is_waited_for_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_turns, "PATIENCE_S", 0.1)
    turns = CoreTurns(root=root)
    with another(root, 1, alone=True) as has:
        assert has.wait(5)
        with turns.turn([1], alone=True) as waited_s:
            assert waited_s >= 0.1
        with turns.turn([1], alone=True) as waited_s:
            assert waited_s < 0.1
    with turns.turn([1], alone=True):
        pass
    with another(root, 1, alone=True) as has:  # it was free once, and is waited for again
        assert has.wait(5)
        with turns.turn([1], alone=True) as waited_s:
            assert waited_s >= 0.1


def test_a_system_without_such_folders_has_no_turns(tmp_path: Path) -> None:
    with (
        CoreTurns(root=tmp_path).turn([1], alone=True),
        another(tmp_path, 1, alone=True) as has,
    ):
        assert has.wait(5)


# Where a sandbox shows no cores there are no turns, as the test before says of such folders.
@pytest.mark.skipif(not (CORES / "cpu0" / ENTRANCE).exists(), reason="the system shows no cores")
def test_the_machines_own_cores_have_turns() -> None:
    with ExitStack() as others:
        with CoreTurns().turn([0], alone=True):
            has = others.enter_context(another(CORES, 0, alone=True))
            assert not has.wait(0.05)
        assert has.wait(5)
