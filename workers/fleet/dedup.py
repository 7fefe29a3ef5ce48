"""Deduplication: of candidates that compile to the same library, only one is measured."""

from __future__ import annotations

from dataclasses import replace

from tuner.measure.outcome import Outcome, Timed
from tuner.workers.fleet.candidates import Item

MOST_OUTCOMES = 8192  # kept at a time; each takes a KiB or two


class Deduplication:
    """Outcomes by library hash, the items that measure one, and those that wait for it.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self._outcomes: dict[str, Outcome] = {}
        self._measured_by: dict[str, Item] = {}
        self._waiting: dict[str, list[Item]] = {}

    def remember(self, sha256: str, outcome: Outcome) -> None:
        self._outcomes[sha256] = outcome
        if len(self._outcomes) > MOST_OUTCOMES:
            del self._outcomes[next(iter(self._outcomes))]  # the oldest

    def outcome(self, sha256: str) -> Outcome | None:
        """The outcome of a duplicate; None if its code was not measured yet."""
        outcome = self._outcomes.get(sha256)
        return None if outcome is None else _reused(outcome)

    def waits(self, item: Item, sha256: str) -> bool:
        """Whether another item measures this code already; the item then waits for it."""
        if sha256 not in self._measured_by:
            return False
        self._waiting.setdefault(sha256, []).append(item)
        return True

    def begin(self, item: Item, sha256: str) -> None:
        """Notes that the item measures this code."""
        self._measured_by[sha256] = item

    def interrupted(self, sha256: str) -> None:
        """Notes that the item that measures this code lost its worker."""
        self._measured_by.pop(sha256, None)

    def ended(self, sha256: str, outcome: Outcome) -> list[tuple[Item, Outcome]]:
        """Takes the outcome of this code; returns the waiting items with their outcomes."""
        self.interrupted(sha256)
        self.remember(sha256, outcome)
        return [(duplicate, _reused(outcome)) for duplicate in self._waiting.pop(sha256, [])]

    def successor(self, sha256: str) -> Item | None:
        """The first waiting item, which measures this code after the previous one gave up."""
        self.interrupted(sha256)
        waiting = self._waiting.pop(sha256, [])
        if not waiting:
            return None
        first, *others = waiting
        self.begin(first, sha256)
        if others:
            self._waiting[sha256] = others
        return first

    def abandon(self, job: str) -> list[Item]:
        """Forgets a job's candidates; returns those of other jobs that now measure their code."""
        self._waiting = {
            sha256: [item for item in items if item.job != job]
            for sha256, items in self._waiting.items()
        }
        theirs = [sha256 for sha256, item in self._measured_by.items() if item.job == job]
        return [item for sha256 in theirs if (item := self.successor(sha256)) is not None]


def _reused(outcome: Outcome) -> Outcome:
    """The outcome for a duplicate: its conditions say that the timing is another trial's."""
    if isinstance(outcome, Timed):
        return replace(outcome, conditions=replace(outcome.conditions, reused=True))
    return outcome
