"""Control requests of an orchestrator to its fleet: builds of finalists, races and
examinations."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from tuner.workers.fleet.messages import (
    BuildFinalists,
    BuildRequest,
    Built,
    ControlReply,
    ControlRequest,
    ControlValue,
    Span,
)


class ControlRequests:
    """The driver's queue of unanswered control requests; the first one is worked on."""

    def __init__(self, send: Callable[[ControlReply], None]) -> None:
        self._send = send
        self._waiting: list[ControlRequest] = []
        self._parts: list[ControlValue] = []  # of the reply to the first request
        self._builds: deque[BuildRequest] = deque()  # builds of the first that no builder has

    @property
    def first(self) -> ControlRequest | None:
        return self._waiting[0] if self._waiting else None

    def add(self, control: ControlRequest) -> None:
        self._waiting.append(control)
        if len(self._waiting) == 1:
            self._open()

    def next_build(
        self, suits: Callable[[BuildRequest], bool] = lambda request: True
    ) -> BuildRequest | None:
        """Takes the first of the first request's builds that suits; None if none is left."""
        for request in self._builds:
            if suits(request):
                self._builds.remove(request)
                return request
        return None

    def part(
        self,
        control: ControlRequest,
        results: Sequence[ControlValue],
        *,
        last: bool,
        spans: Sequence[Span] = (),
    ) -> None:
        """Adds one worker's results to the reply.

        The reply is sent with the results of the `last` worker if no build is left. A
        request that lost a worker already had its reply.
        """
        if control not in self._waiting:
            return
        self._parts += results
        if last and not self._builds:
            parts = sorted(
                self._parts, key=lambda part: part.number if isinstance(part, Built) else 0
            )
            reply = ControlReply(
                number=control.number, value=tuple(parts), error=None, spans=tuple(spans)
            )
            self._close(reply, control)

    def refuse(self, control: ControlRequest, reason: str) -> None:
        """Replies with an error, after the request lost a worker."""
        if control in self._waiting:
            self._close(ControlReply(number=control.number, value=(), error=reason), control)

    def _close(self, answer: ControlReply, control: ControlRequest) -> None:
        self._waiting.remove(control)
        self._open()
        self._send(answer)

    def _open(self) -> None:
        """Begins with the request that is first now."""
        self._parts = []
        first = self.first
        self._builds = deque(
            first.what.requests
            if first is not None and isinstance(first.what, BuildFinalists)
            else ()
        )
