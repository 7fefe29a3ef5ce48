"""Middleware that limits the size and the slowness of request bodies, also of chunked ones."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.api.problems import Problem, on_http_exception

LENGTH = re.compile(r"[0-9]{1,18}")
# A client that is still sending when the connection closes may never see the refusal.
# Hence so much more is read and dropped first.
DRAINED_BYTES = 8 * 1024 * 1024
PAUSE_S = 30.0  # for the next part of a body
LEAST_BYTES_PER_S = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How large the bodies of a path may be."""

    most_bytes: int
    way_out: str = "send less, or several requests"  # for who has a larger one


class BodyLimit:
    """Refuses bodies beyond `limit_of(path)`, and those that do not come.

    Otherwise a client whose network went away in the middle would hold its connection, and what it
    had sent, for good.
    """

    def __init__(
        self, app: ASGIApp, *, limit_of: Callable[[str], Limit], pause_s: float = PAUSE_S
    ) -> None:
        self.app = app
        self.limit_of = limit_of
        self.pause_s = pause_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.limit_of(scope["path"])
        body = ArrivingBody(receive, self.pause_s)
        try:
            declared = declared_length(scope)
            if declared > limit.most_bytes:
                await body.drain()
                raise too_large(limit, declared)
        except Problem as problem:
            await (await on_http_exception(Request(scope), problem))(scope, receive, send)
            return

        async def limited() -> Message:
            message = await body.receive()
            if body.seen > limit.most_bytes:
                await body.drain()
                raise too_large(limit, body.seen)
            return message

        await self.app(scope, limited, send)


class ArrivingBody:
    """A body as its parts arrive, which they must do within `pause_s` and at a least rate."""

    def __init__(self, receive: Receive, pause_s: float) -> None:
        self._receive, self._pause_s = receive, pause_s
        self._began_s: float | None = None  # when it was first waited for
        self._is_whole = False
        self.seen = 0  # bytes

    async def receive(self) -> Message:
        """The next message. Raises Problem for a part that does not come in time."""
        if self._is_whole:  # what comes now is the end of the connection, perhaps in hours
            return await self._receive()
        now_s = time.monotonic()
        self._began_s = now_s if self._began_s is None else self._began_s
        elapsed_s = now_s - self._began_s
        due_s = self._pause_s + self.seen / LEAST_BYTES_PER_S - elapsed_s
        try:
            async with asyncio.timeout(min(self._pause_s, due_s)):
                message = await self._receive()
        except TimeoutError as error:
            raise too_slow(self.seen, self._pause_s) from error
        self.seen += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        return message

    async def drain(self) -> None:
        """Drops what still comes, up to DRAINED_BYTES."""
        most = self.seen + DRAINED_BYTES
        while not self._is_whole and self.seen < most:
            await self.receive()


def declared_length(scope: Scope) -> int:
    text = Headers(scope=scope).get("content-length", "0")
    if not LENGTH.fullmatch(text):
        raise Problem(400, "invalid_request", "Content-Length is not a number of bytes")
    return int(text)


def too_large(limit: Limit, size: int) -> Problem:
    detail = (
        f"the body has {size} bytes or more; this address takes at most {limit.most_bytes}: "
        f"{limit.way_out}"
    )
    return Problem(413, "body_too_large", detail, headers={"Connection": "close"})


def too_slow(seen: int, pause_s: float) -> Problem:
    detail = (
        f"the body stopped after {seen} bytes: its parts have to come within {pause_s:g} s of each "
        f"other, and {LEAST_BYTES_PER_S} bytes a second at least; send it again"
    )
    return Problem(408, "body_too_slow", detail, headers={"Connection": "close"})
