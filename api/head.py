"""Middleware that answers HEAD as GET, without the body (RFC 9110, section 9.3.2)."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    """Has the routes answer GET, and sends the head of the answer, also that of a stream."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                # The end: whoever streams is told that the client is gone.
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        scope["method"] = "GET"
        try:
            await self.app(scope, receive, send_head)
        finally:
            scope["method"] = "HEAD"  # as it is logged and counted
