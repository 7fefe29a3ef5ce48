"""The limit on a request's body, kept while it is read, so that a body sent in chunks without a length cannot pass it."""

from __future__ import annotations

from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import Problem, problem_response


class BodyLimit:
    """`limit_of(path)` is the most bytes a body to that path may have."""

    def __init__(self, app: ASGIApp, *, limit_of: Callable[[str], int]) -> None:
        self.app, self.limit_of = app, limit_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.limit_of(scope["path"])
        declared = Headers(scope=scope).get("content-length", "0")
        if not declared.isdigit():
            detail = "Content-Length is not a number"
            refusal = problem_response(Request(scope), status=400, code="invalid_request", detail=detail)
            await refusal(scope, receive, send)
            return
        if int(declared) > limit:
            detail = too_large(limit, int(declared))
            await problem_response(Request(scope), status=413, code="body_too_large", detail=detail)(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise Problem(413, "body_too_large", too_large(limit, seen), headers={"Connection": "close"})
            return message

        await self.app(scope, counted, send)


def too_large(limit: int, size: int) -> str:
    return f"the body has {size} bytes or more; this address takes at most {limit}. Send less, or several requests"
