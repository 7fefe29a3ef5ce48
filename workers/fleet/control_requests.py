"""What an orchestrator asks its fleet besides candidates: builds of finalists, which
several builders share, and races."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from tuner.workers.fleet.messages import (
    BuildFinalists,
    BuildRequest,
    Built,
    ControlReply,
    ControlRequest,
    RaceOutcome,
    Span,
)


class ControlRequests:
    """Those without an answer, in the order they came; the first one is worked on."""

    def __init__(self, send: Callable[[ControlReply], None]) -> None:
        self._send, self._waiting = send, list[ControlRequest]()
        self._parts: list[Built | RaceOutcome] = []  # of the answer to the first one
        self._builds: deque[BuildRequest] = deque()  # of the first one, that no builder was given

    @property
    def first(self) -> ControlRequest | None:
        return self._waiting[0] if self._waiting else None

    def add(self, control: ControlRequest) -> None:
        self._waiting.append(control)
        if len(self._waiting) == 1:
            self._open()

    def next_build(self) -> BuildRequest | None:
        """Takes one of the first control request's builds; None where all are taken, or
        it wants none."""
        return self._builds.popleft() if self._builds else None

    def part(
        self,
        control: ControlRequest,
        results: Sequence[Built | RaceOutcome],
        *,
        last: bool,
        spans: Sequence[Span] = (),
    ) -> None:
        """What one worker found; the answer goes with the `last` of those at work where
        no build is left to be taken.

        A control request that lost a worker has had its answer.
        """
        if control not in self._waiting:
            return
        self._parts += results
        if last and not self._builds:
            found = sorted(self._parts, key=lambda one: one.number if isinstance(one, Built) else 0)
            self._close(
                ControlReply(
                    number=control.number, value=tuple(found), error=None, spans=tuple(spans)
                ),
                control,
            )

    def refuse(self, control: ControlRequest, reason: str) -> None:
        """A worker was lost over it."""
        if control in self._waiting:
            self._close(ControlReply(number=control.number, value=(), error=reason), control)

    def _close(self, answer: ControlReply, control: ControlRequest) -> None:
        self._waiting.remove(control)
        self._open()
        self._send(answer)

    def _open(self) -> None:
        """Begins with the control request that is first now."""
        self._parts = []
        first = self.first
        self._builds = deque(
            first.what.requests
            if first is not None and isinstance(first.what, BuildFinalists)
            else ()
        )
