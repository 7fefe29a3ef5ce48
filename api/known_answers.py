"""Answers to lookups, kept as the bytes they were sent as: a lookup asked again costs
one small statement, not a dozen objects.

Nothing kept is sent before the database was asked whether it still holds, so a
promotion shows in the next answer.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from tuner.db.engine import Database
from tuner.db.served import Served, served


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAnswer:
    body: bytes
    workload: str  # key
    target: str  # key
    threads: int
    holds_for: Served  # what was promoted when it was made


class KnownAnswers:
    """The latest of many, by the request they answer. Thread-safe."""

    def __init__(self, capacity: int = 2048) -> None:
        self._capacity, self._lock = capacity, Lock()
        self._known: OrderedDict[str, KnownAnswer] = OrderedDict()

    def find(self, database: Database, request: str) -> bytes | None:
        """The answer to `request`, where one is kept that still holds."""
        with self._lock:
            known = self._known.get(request)
            if known is None:
                return None
            self._known.move_to_end(request)
        now = served(database, workload=known.workload, target=known.target, threads=known.threads)
        return known.body if now == known.holds_for else None

    def keep(self, request: str, answer: KnownAnswer) -> None:
        with self._lock:
            self._known[request] = answer
            self._known.move_to_end(request)
            if len(self._known) > self._capacity:
                self._known.popitem(last=False)
