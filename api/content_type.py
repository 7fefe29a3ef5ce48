"""Checks the media type of request bodies; nothing is guessed from their content."""

from __future__ import annotations

from fastapi import Depends
from starlette.requests import Request

from tuner.api.problems import Problem


def require_type(request: Request, *accepted: str) -> None:
    """Refuses a body of another type."""
    given = _given(request)
    if given not in accepted:
        raise _refusal(given, accepted[0])


async def _json(request: Request) -> None:
    given = _given(request)
    if not given and not await request.body():
        return  # no body at all: the route decides whether it needs one
    if given != "application/json" and not (
        given.startswith("application/") and given.endswith("+json")
    ):
        raise _refusal(given, "application/json")


def _given(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _refusal(given: str, accepted: str) -> Problem:
    return Problem(
        415, "unsupported_media_type", f"the body is {given or 'of no type'}; send {accepted}"
    )


JSON_BODY = Depends(_json)  # for routes whose body is a document
