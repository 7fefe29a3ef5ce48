"""Sessions of the dashboard: API keys in a cookie, and tokens of its forms.

The cookie holds the key itself, HttpOnly and SameSite=Strict, until the browser closes.
Every request checks it against the database, so that revoking a key ends its sessions at
once. It is no credential for /v1. Forms repeat the value of a second cookie, which
another site can neither read nor send.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from tuner.api.auth import OPERATOR, Caller, count_refusal, take_token, verify
from tuner.api.options import is_loopback
from tuner.api.problems import Problem
from tuner.api.service import Service, ServiceDep

SESSION, FORM = "tuner_session", "tuner_form"  # cookies
FIELD = "form_token"
MAX_FIELDS = 200


class SignIn(Exception):
    """There is no session, or its key is no longer valid."""


async def viewer(request: Request, service: ServiceDep) -> Caller:
    """The caller of a page. Raises SignIn, or Problem for a key without the scope `read`."""
    if service.options.auth == "off":
        if request.client is None or not is_loopback(request.client.host):
            raise Problem(403, "forbidden", "auth is off, so only this machine may call")
        return OPERATOR
    token = request.cookies.get(SESSION, "")
    caller = await run_in_threadpool(verify, service.database, token) if token else None
    if caller is None:
        raise SignIn
    take_token(service, caller, 1.0)
    if not caller.may("read"):
        raise Problem(
            403,
            "forbidden",
            f"this key has the scopes {', '.join(sorted(caller.scopes))}; 'read' is needed",
        )
    return caller


async def enter(request: Request, service: Service, token: str) -> Caller | None:
    """The caller of a key from the sign-in form; None for a wrong key.

    Wrong keys count against the address. Raises Problem 429 for too many.
    """
    caller = await run_in_threadpool(verify, service.database, token)
    if caller is None:
        count_refusal(service, request.client.host if request.client else "")
    return caller


def keep(response: Response, request: Request, name: str, value: str) -> None:
    response.set_cookie(
        name,
        value,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path="/",
    )


def form_token(request: Request) -> str:
    """The token of the browser's forms, a new one if it has none yet."""
    return _kept_token(request) or secrets.token_urlsafe(32)


def _kept_token(request: Request) -> str | None:
    """The token in the browser's cookie, if it has the form of one."""
    token = request.cookies.get(FORM, "")
    return token if len(token) == 43 and token.isascii() else None


async def form(request: Request) -> Mapping[str, str]:
    """The fields of a posted form. Raises Problem, also for a wrong token."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Problem(
            415, "unsupported_media_type", f"the body is {kind or 'of no type'}; send a form"
        )
    try:
        fields = dict(
            parse_qsl(
                (await request.body()).decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS
            )
        )
    except ValueError as error:
        raise Problem(400, "invalid_request", "the form cannot be read") from error
    kept = _kept_token(request)
    if kept is None or not hmac.compare_digest(fields.get(FIELD, "").encode(), kept.encode()):
        raise Problem(
            403,
            "foreign_form",
            "this form was not made by this page, or is too old; reload the page and try again",
        )
    return fields


Viewer = Annotated[Caller, Depends(viewer)]
Form = Annotated[Mapping[str, str], Depends(form)]


def submitter(caller: Viewer) -> Caller:
    if not caller.may("submit"):
        raise Problem(
            403,
            "forbidden",
            f"this key has the scopes {', '.join(sorted(caller.scopes))}; 'submit' is needed",
        )
    return caller


Submitter = Annotated[Caller, Depends(submitter)]
