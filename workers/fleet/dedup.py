"""Code that is measured once: of candidates that compile to the same library one is
measured, and the others get its outcome."""

from __future__ import annotations

from dataclasses import replace

from tuner.measure.outcome import Outcome, Timed
from tuner.workers.fleet.candidates import Item

MOST_KNOWN = 8192  # outcomes that are kept; each takes a KiB or two


class Deduplication:
    """By the hash of a library: its outcome, who measures it, and who waits for that.
    Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, Outcome] = {}
        self._measured_by: dict[str, Item] = {}
        self._waiting: dict[str, list[Item]] = {}

    def remember(self, sha256: str, outcome: Outcome) -> None:
        self._known[sha256] = outcome
        if (
            len(self._known) > MOST_KNOWN
        ):  # the oldest goes; code that comes back later still is timed again
            del self._known[next(iter(self._known))]

    def outcome(self, sha256: str) -> Outcome | None:
        """Of a duplicate of code that was measured; None where it was not."""
        outcome = self._known.get(sha256)
        return None if outcome is None else _reused(outcome)

    def waits(self, item: Item, sha256: str) -> bool:
        """Whether another measures the item's code already; the item then waits for
        what becomes of it."""
        if sha256 not in self._measured_by:
            return False
        self._waiting.setdefault(sha256, []).append(item)
        return True

    def begin(self, item: Item, sha256: str) -> None:
        """The item is to measure this code."""
        self._measured_by[sha256] = item

    def interrupted(self, sha256: str) -> None:
        """Whoever measured this code lost its worker, and begins again or gives up."""
        self._measured_by.pop(sha256, None)

    def ended(self, sha256: str, outcome: Outcome) -> list[tuple[Item, Outcome]]:
        """This code has been measured; those that waited for it, each with its outcome."""
        self.interrupted(sha256)
        self.remember(sha256, outcome)
        return [(duplicate, _reused(outcome)) for duplicate in self._waiting.pop(sha256, [])]

    def successor(self, sha256: str) -> Item | None:
        """The item that was to measure this code will not: the first that waits for it
        gets its turn."""
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
        """Forgets a job's candidates; those of other jobs that get their turn for it."""
        self._waiting = {
            sha256: [item for item in items if item.job != job]
            for sha256, items in self._waiting.items()
        }
        theirs = [sha256 for sha256, item in self._measured_by.items() if item.job == job]
        return [item for sha256 in theirs if (item := self.successor(sha256)) is not None]


def _reused(outcome: Outcome) -> Outcome:
    """Timings of another trial say so in their conditions."""
    if isinstance(outcome, Timed):
        return replace(outcome, conditions=replace(outcome.conditions, reused=True))
    return outcome
