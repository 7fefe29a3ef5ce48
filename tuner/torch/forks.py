"""What a forked child makes its own: of its parent's threads it has only the one that forked, but
their locks and the ends of their pipes."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet


class Inherited(ABC):
    """An object of which a forked child has a copy that it has to make its own."""

    def __init__(self) -> None:
        _INHERITED.add(self)

    @abstractmethod
    def after_fork(self) -> None:
        """Is called in the child, before anything else runs there."""


# The system forks a process as a whole, so there is one set of it.
_INHERITED: WeakSet[Inherited] = WeakSet()
_forking = threading.Lock()  # held while the process forks


class ProcessLock(Inherited):
    """A lock between threads. A forked child has it free, whoever held it."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        if self._lock.locked():  # it is not, where the process has forked meanwhile
            self._lock.release()

    def after_fork(self) -> None:
        self._lock = threading.Lock()


@contextmanager
def unforked() -> Iterator[None]:
    """Keeps other threads from forking meanwhile: what is made has a name by then."""
    with _forking:
        yield


def _in_child() -> None:
    _forking.release()
    for each in list(_INHERITED):
        each.after_fork()


os.register_at_fork(
    before=_forking.acquire, after_in_parent=_forking.release, after_in_child=_in_child
)
