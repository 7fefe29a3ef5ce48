"""Ctrl-C during a run: the first asks the job to stop cleanly, the second ends the
command at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signal(note: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether to stop. SIGINT and SIGTERM make it true; a
    second one raises KeyboardInterrupt."""
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt
        note("stopping; once more to give up at once")

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def raised_on_signal() -> Iterator[None]:
    """SIGINT and SIGTERM raise KeyboardInterrupt at once, also out of a wait for the network."""

    def handle(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
