"""Token buckets, which limit the requests of a key and the wrong credentials of an address."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import ceil, inf
from threading import Lock
from time import monotonic


class TokenBuckets:
    """One bucket for each name, full at first and refilled evenly. Thread-safe.

    Holds at most `names` buckets and drops the least recently used ones.
    """

    def __init__(
        self,
        *,
        per_s: float,
        burst: int,
        clock: Callable[[], float] = monotonic,
        names: int = 10_000,
    ) -> None:
        self.per_s = per_s
        self.burst = burst
        self.clock = clock
        self.names = names
        # by name: tokens left, and when that was
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def take(self, name: str, cost: float = 1.0) -> float:
        """Takes `cost` tokens and returns 0, or takes none and returns the seconds to wait."""
        with self._lock:
            now = self.clock()
            tokens = self._tokens(name, now)
            wait_s = 0.0 if tokens >= cost else self._wait_s(cost - tokens)
            self._store(name, tokens - cost if wait_s == 0.0 else tokens, now)
            return wait_s

    def _tokens(self, name: str, now: float) -> float:
        tokens, then = self._buckets.get(name, (float(self.burst), now))
        return min(float(self.burst), tokens + (now - then) * self.per_s)

    def _wait_s(self, missing: float) -> float:
        return missing / self.per_s if self.per_s > 0 else inf

    def _store(self, name: str, tokens: float, now: float) -> None:
        self._buckets[name] = (tokens, now)
        self._buckets.move_to_end(name)
        while len(self._buckets) > self.names:
            self._buckets.popitem(last=False)


def retry_after(wait_s: float) -> str:
    """The value of a Retry-After header: whole seconds, at least 1."""
    return str(max(1, ceil(min(wait_s, 3600.0))))
