"""Middleware that refuses requests of other sites' pages through a visitor's browser.

Without it, with auth 'off' on loopback, any page that the operator visits could submit
jobs (cross-site request forgery, DNS rebinding).
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from tuner.api.problems import problem_response

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class CrossOriginGuard:
    """Refuses unsafe methods with a foreign Origin and, with auth off, foreign Host names."""

    def __init__(self, app: ASGIApp, *, loopback_only: bool) -> None:
        self.app = app
        self.loopback_only = loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            reason = refusal(
                Headers(scope=scope), scope["method"], loopback_only=self.loopback_only
            )
            if reason is not None:
                response = problem_response(
                    Request(scope), status=403, code="foreign_origin", detail=reason
                )
                await response(scope, receive, send)
                return
        await self.app(scope, receive, send)


def refusal(headers: Headers, method: str, *, loopback_only: bool) -> str | None:
    """Why the request is refused; None if it is not."""
    host = headers.get("host", "")
    if loopback_only and hostname(f"//{host}") not in LOOPBACK_NAMES:
        return (
            f"Host {host!r} is not a loopback name; with auth off the service answers only "
            f"to localhost, 127.0.0.1 and [::1]"
        )
    origin = headers.get("origin")
    if method not in SAFE_METHODS and origin is not None and netloc(origin) != host.lower():
        return f"Origin {origin!r} is not this service; requests of other sites' pages are refused"
    return None


def hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def netloc(url: str) -> str | None:
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return None
