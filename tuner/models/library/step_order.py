"""Which earlier steps each step of a call must wait for, by the bytes that they use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Access = tuple[int | None, int, int, bool]
"""The buffer, the first byte and the one behind the last, and whether they are written."""


@dataclass(frozen=True, slots=True)
class _Use:
    """Bytes that a step has used."""

    step: int
    buffer: int | None
    start: int
    end: int
    writes: bool

    def conflicts(self, other: _Use) -> bool:
        """Whether the order of both matters: they share bytes that one of them writes."""
        return (
            (self.writes or other.writes)
            and self.buffer == other.buffer
            and self.start < other.end
            and other.start < self.end
        )

    def covers(self, other: _Use) -> bool:
        return self.buffer == other.buffer and self.start <= other.start and other.end <= self.end


class StepOrder:
    """Takes steps in an order that is right, and drops what of it does not matter."""

    def __init__(self) -> None:
        self._uses: list[_Use] = []  # those that a later step may have to wait for
        self._before: list[int] = []  # of each step all that end before it, a bit each

    def add(self, accesses: Sequence[Access]) -> tuple[int, ...]:
        """The steps that the next one waits for. None of them waits for another of them."""
        step = len(self._before)
        uses = [_Use(step, *access) for access in accesses]
        needed = {earlier.step for earlier in self._uses for use in uses if use.conflicts(earlier)}
        waits, before = [], 0
        for earlier in sorted(needed, reverse=True):
            if not before >> earlier & 1:
                waits.append(earlier)
                before |= self._before[earlier] | 1 << earlier
        self._before.append(before)
        # Whoever waits for a write waits for all uses of its bytes before.
        written = [use for use in uses if use.writes]
        self._uses = [
            earlier for earlier in self._uses if not any(use.covers(earlier) for use in written)
        ]
        self._uses += uses
        return tuple(sorted(waits))
