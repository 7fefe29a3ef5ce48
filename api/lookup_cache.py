"""A cache of encoded answers to lookups: a repeated lookup costs one small statement.

The database is asked before a cached answer is sent, so that a promotion shows in the
next answer.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from tuner.db.engine import Database
from tuner.db.served import Served, served
from tuner.measure.cache import Cache


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedLookup:
    """An encoded answer and what it depends on."""

    body: bytes
    workload: str  # key
    target: str  # key
    threads: int
    cache: Cache  # of the kernel's race
    holds_for: Served  # the promoted kernel when the answer was made


class LookupCache:
    """The most recently used answers by request. Thread-safe."""

    def __init__(self, capacity: int = 2048) -> None:
        self._capacity = capacity
        self._lock = Lock()
        self._answers: OrderedDict[str, CachedLookup] = OrderedDict()

    def find(self, database: Database, request: str) -> bytes | None:
        """The cached answer to `request` if it still holds."""
        with self._lock:
            cached = self._answers.get(request)
            if cached is None:
                return None
            self._answers.move_to_end(request)
        now = served(
            database,
            workload=cached.workload,
            target=cached.target,
            threads=cached.threads,
            cache=cached.cache,
        )
        return cached.body if now == cached.holds_for else None

    def keep(self, request: str, answer: CachedLookup) -> None:
        with self._lock:
            self._answers[request] = answer
            self._answers.move_to_end(request)
            if len(self._answers) > self._capacity:
                self._answers.popitem(last=False)
