"""A fleet whose trials are next to nothing, for benchmarks/soak.py.

    python -m benchmarks.noop FD SESSION

This starts the process of its driver. Driver, actors, runner processes and the children
that run candidates are the real ones, but there is no compiler and hardly any timing.

Every candidate is the library of the default schedule, built once, with a count behind
the end of the file. Other bytes make another hash, so that each is loaded, checked and
timed in a child of its own.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tuner.measure.assignment import Request
from tuner.measure.cache import Cache
from tuner.measure.timing import TimingPlan
from tuner.workers.fleet.actors import ActorFactory
from tuner.workers.fleet.builder import Builder
from tuner.workers.fleet.driver import main
from tuner.workers.fleet.messages import BuildRequest, Built, Library, MeasureRequest
from tuner.workers.fleet.runner import Runner
from tuner.workers.fleet.shipping import place

BARE = TimingPlan(budget_s=0.0, min_samples=1, min_repeat_s=0.0, warmup_s=0.0)


class NoopBuilder(Builder):
    """Compiles once."""

    _count = 0
    _first: Library | None = None
    _content = b""

    def build(self, problem_key: str, requests: Sequence[BuildRequest]) -> list[Built]:
        if self._first is None:
            (built,) = super().build(problem_key, [BuildRequest(number=0, config=None)])
            if not isinstance(built.result, Library):
                return [replace(built, number=request.number) for request in requests]
            self._first, self._content = built.result, Path(built.result.path).read_bytes()
        return [self._copy(self._first, request) for request in requests]

    def _copy(self, first: Library, request: BuildRequest) -> Built:
        started = time.monotonic()
        self._count += 1
        content = self._content + self._count.to_bytes(8, "little")
        digest = hashlib.sha256(content).hexdigest()
        path = place(Path(first.path).parent, f"{digest}.so", content)
        library = Library(sha256=digest, path=str(path), symbol=first.symbol)
        return Built(
            number=request.number, result=library, started_s=started, ended_s=time.monotonic()
        )


class NoopRunner(Runner):
    """Checks as usual and calls the kernel once for the time."""

    def measurement_request(
        self, request: MeasureRequest, library: Library, cache: Cache
    ) -> Request:
        return replace(super().measurement_request(request, library, cache), plan=BARE)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], ActorFactory(builder=NoopBuilder, runner=NoopRunner))
