"""Deduplication: of candidates that compile to the same library, only one is measured."""

from __future__ import annotations

from dataclasses import replace

from tuner.measure.outcome import Outcome, Timed
from tuner.workers.fleet.candidates import Item, TimedCode

MOST_OUTCOMES = 8192  # kept at a time; each takes a KiB or two


class Deduplication:
    """Outcomes by timed code, the items that measure one, and those that wait for it.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self._outcomes: dict[TimedCode, Outcome] = {}
        self._measured_by: dict[TimedCode, Item] = {}
        self._waiting: dict[TimedCode, list[Item]] = {}

    def remember(self, code: TimedCode, outcome: Outcome) -> None:
        self._outcomes[code] = outcome
        if len(self._outcomes) > MOST_OUTCOMES:
            del self._outcomes[next(iter(self._outcomes))]  # the oldest

    def outcome(self, code: TimedCode) -> Outcome | None:
        """The outcome of a duplicate; None if its code was not measured yet."""
        outcome = self._outcomes.get(code)
        return None if outcome is None else _reused(outcome)

    def waits(self, item: Item, code: TimedCode) -> bool:
        """Whether another item measures this code already; the item then waits for it."""
        if code not in self._measured_by:
            return False
        self._waiting.setdefault(code, []).append(item)
        return True

    def begin(self, item: Item, code: TimedCode) -> None:
        """Notes that the item measures this code."""
        self._measured_by[code] = item

    def interrupted(self, code: TimedCode) -> None:
        """Notes that the item that measures this code lost its worker."""
        self._measured_by.pop(code, None)

    def ended(self, code: TimedCode, outcome: Outcome) -> list[tuple[Item, Outcome]]:
        """Takes the outcome of this code; returns the waiting items with their outcomes."""
        self.interrupted(code)
        self.remember(code, outcome)
        return [(duplicate, _reused(outcome)) for duplicate in self._waiting.pop(code, [])]

    def successor(self, code: TimedCode) -> Item | None:
        """The first waiting item, which measures this code after the previous one gave up."""
        self.interrupted(code)
        waiting = self._waiting.pop(code, [])
        if not waiting:
            return None
        first, *others = waiting
        self.begin(first, code)
        if others:
            self._waiting[code] = others
        return first

    def abandon(self, job: str) -> list[Item]:
        """Forgets a job's candidates; returns those of other jobs that now measure their code."""
        self._waiting = {
            code: [item for item in items if item.job != job]
            for code, items in self._waiting.items()
        }
        theirs = [code for code, item in self._measured_by.items() if item.job == job]
        return [item for code in theirs if (item := self.successor(code)) is not None]


def _reused(outcome: Outcome) -> Outcome:
    """The outcome for a duplicate: its conditions say that the timing is another trial's."""
    if isinstance(outcome, Timed):
        return replace(outcome, conditions=replace(outcome.conditions, reused=True))
    return outcome
