"""Middleware for request ids, the access log and request metrics; the outermost layer."""

from __future__ import annotations

import re
from time import perf_counter
from uuid import uuid4

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.api.metrics import Metrics

ACCEPTED_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
# Not logged: probes come every few seconds.
QUIET = frozenset({"/v1/health/live", "/v1/health/ready", "/v1/metrics"})

log = structlog.get_logger("api.access")


class Access:
    """Gives each request an id, a line in the log and a count in the metrics.

    The id is the caller's X-Request-ID if it is harmless, otherwise a new one. It is bound
    to every log line of the request.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = self.request_id(scope)
        scope["request_id"] = request_id
        started, status = perf_counter(), 500
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).setdefault("X-Request-ID", request_id)
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            elapsed_s = perf_counter() - started
            self.metrics.request(
                method=scope["method"], route=route_of(scope), status=status, elapsed_s=elapsed_s
            )
            if scope["path"] not in QUIET:
                log.info(
                    "request",
                    method=scope["method"],
                    path=scope["path"],
                    status=status,
                    elapsed_ms=round(elapsed_s * 1000, 2),
                    key=getattr(scope.get("state", {}).get("caller"), "key_id", None),
                )

    @staticmethod
    def request_id(scope: Scope) -> str:
        given = Headers(scope=scope).get("x-request-id", "")
        return given if ACCEPTED_ID.fullmatch(given) else uuid4().hex


def route_of(scope: Scope) -> str:
    """The path's template, so that metrics have a bounded number of labels."""
    return getattr(scope.get("route"), "path", None) or "unmatched"
