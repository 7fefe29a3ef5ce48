"""Middleware that names no scheme and no host in redirects to this service.

Behind a proxy that speaks TLS the service sees plain HTTP. A redirect to `http://` would
have a client send its key again in the clear.
"""

from __future__ import annotations

from starlette.datastructures import URL, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class RelativeRedirects:
    """Redirects to a path of this service, such as from one with a slash too many."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_relative(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if "location" in headers:
                    headers["location"] = relative(headers["location"], URL(scope=scope))
            await send(message)

        await self.app(scope, receive, send_relative)


def relative(location: str, here: URL) -> str:
    """The location as a path where it is one of the service that was asked at `here`."""
    base = f"{here.scheme}://{here.netloc}"
    path = location.removeprefix(base)
    # A path of two slashes would name another host.
    return path if path != location and path.startswith("/") and path[1:2] != "/" else location
