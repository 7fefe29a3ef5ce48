"""What an orchestrator asks its fleet besides candidates: builds of finalists, which
several builders share, and races."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from tuner.workers.fleet.messages import (
    Answer,
    Ask,
    BuildAsk,
    BuildRequest,
    Built,
    RaceOutcome,
    Span,
)


class Questions:
    """Those without an answer, in the order they came; the first one is worked on."""

    def __init__(self, send: Callable[[Answer], None]) -> None:
        self._send, self._waiting = send, list[Ask]()
        self._parts: list[Built | RaceOutcome] = []  # of the answer to the first one
        self._builds: deque[BuildRequest] = deque()  # of the first one, that no builder was given

    @property
    def first(self) -> Ask | None:
        return self._waiting[0] if self._waiting else None

    def add(self, ask: Ask) -> None:
        self._waiting.append(ask)
        if len(self._waiting) == 1:
            self._open()

    def next_build(self) -> BuildRequest | None:
        """Takes one of the first question's builds; None where all are taken, or it wants none."""
        return self._builds.popleft() if self._builds else None

    def part(
        self,
        ask: Ask,
        results: Sequence[Built | RaceOutcome],
        *,
        last: bool,
        spans: Sequence[Span] = (),
    ) -> None:
        """What one worker found; the answer goes with the `last` of those at work where
        no build is left to be taken.

        A question that lost a worker has had its answer.
        """
        if ask not in self._waiting:
            return
        self._parts += results
        if last and not self._builds:
            found = sorted(self._parts, key=lambda one: one.number if isinstance(one, Built) else 0)
            self._close(
                Answer(number=ask.number, value=tuple(found), error=None, spans=tuple(spans)), ask
            )

    def refuse(self, ask: Ask, reason: str) -> None:
        """A worker was lost over it."""
        if ask in self._waiting:
            self._close(Answer(number=ask.number, value=(), error=reason), ask)

    def _close(self, answer: Answer, ask: Ask) -> None:
        self._waiting.remove(ask)
        self._open()
        self._send(answer)

    def _open(self) -> None:
        """Begins with the question that is first now."""
        self._parts = []
        first = self.first
        self._builds = deque(
            first.what.requests if first is not None and isinstance(first.what, BuildAsk) else ()
        )
