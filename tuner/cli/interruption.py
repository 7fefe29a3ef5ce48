"""Ctrl-C during a run: the first stops the job cleanly, the second ends the command."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signal(note: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Yields a function that tells whether a SIGINT or SIGTERM asked to stop.

    A second signal raises KeyboardInterrupt.
    """
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
    """Makes SIGINT and SIGTERM raise KeyboardInterrupt at once, even in a network wait."""

    def handle(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
