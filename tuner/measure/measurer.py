"""The role that turns candidates into trials: Ray workers, or a recorded table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tuner.measure.outcome import Candidate, Trial


class Measurer(Protocol):
    """Measures candidates of one (workload, target, threads).

    Not thread-safe. Whoever opens it closes it.
    """

    @property
    def capacity(self) -> int:
        """How many candidates may be in flight so that no worker waits."""
        ...

    def submit(self, candidates: Sequence[Candidate]) -> None: ...

    def results(self, *, timeout_s: float) -> Iterator[Trial]:
        """Trials as they finish, each once.

        Ends when none came within `timeout_s`, or when none is in flight.
        """
        ...

    def close(self) -> None:
        """Give up what is in flight. Idempotent."""
        ...
