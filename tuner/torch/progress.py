"""How far the tuning is that a call waits for: a line on a terminal that is written anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_CLEARED = "\r\x1b[2K"


class ProgressLine:
    """A line of standard error; nothing is written where that is no terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Clears the line in the end."""
        try:
            yield
        finally:
            self._write("")

    def show(self, text: str) -> None:
        self._write(text)

    def _write(self, text: str) -> None:
        if self._stream.isatty():
            self._stream.write(f"{_CLEARED}{text}")
            self._stream.flush()
