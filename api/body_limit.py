"""Middleware that limits the size of request bodies, also of chunked ones."""

from __future__ import annotations

import re
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.api.problems import Problem, on_http_exception

LENGTH = re.compile(r"[0-9]{1,18}")
# A client that is still sending when the connection closes may never see the refusal.
# Hence so much more is read and dropped first.
DRAINED_BYTES = 8 * 1024 * 1024


class BodyLimit:
    """Refuses bodies of more than `limit_of(path)` bytes."""

    def __init__(self, app: ASGIApp, *, limit_of: Callable[[str], int]) -> None:
        self.app = app
        self.limit_of = limit_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.limit_of(scope["path"])
        try:
            declared = declared_length(scope)
            if declared > limit:
                await drain(receive)
                raise too_large(limit, declared)
        except Problem as problem:
            await (await on_http_exception(Request(scope), problem))(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                if message.get("more_body", False):
                    await drain(receive)
                raise too_large(limit, seen)
            return message

        await self.app(scope, counted, send)


def declared_length(scope: Scope) -> int:
    text = Headers(scope=scope).get("content-length", "0")
    if not LENGTH.fullmatch(text):
        raise Problem(400, "invalid_request", "Content-Length is not a number of bytes")
    return int(text)


async def drain(receive: Receive) -> None:
    dropped = 0
    while dropped < DRAINED_BYTES:
        message = await receive()
        dropped += len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body", False):
            return


def too_large(limit: int, size: int) -> Problem:
    detail = (
        f"the body has {size} bytes or more; this address takes at most {limit}. Send "
        f"less, or several requests"
    )
    return Problem(413, "body_too_large", detail, headers={"Connection": "close"})
