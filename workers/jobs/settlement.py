"""Stores the winners of races that are over, while the next race is prepared."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future

Settle = Callable[[], str]
"""Stores a winner; returns the kernel's id."""


class Settlement:
    """One winner at a time is stored on a thread. Used by the job's thread alone.

    Whoever begins a race ends this first: nothing is stored beside a race. A context manager:
    what was begun is ended, whatever happens to the next kernel.
    """

    def __init__(self, background: Executor) -> None:
        self._background = background
        self._pending: tuple[Future[str], Callable[[Settle], None]] | None = None

    def __enter__(self) -> Settlement:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def begin(self, settle: Settle, then: Callable[[Settle], None]) -> None:
        """Begins to store a winner.

        `then` is called by the next `end`; what it is given returns or raises what
        `settle` did.
        """
        self.end()
        self._pending = self._background.submit(settle), then

    def end(self) -> None:
        """Waits for the winner that is being stored. Raises what its `then` raises."""
        pending, self._pending = self._pending, None
        if pending is not None:
            future, then = pending
            then(future.result)
