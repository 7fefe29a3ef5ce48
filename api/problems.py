"""RFC 9457 problems, and the mapping from the product's errors to HTTP statuses.

A problem has a `code` (stable, for programs), `request_id` and `retryable`, and for a
workload the line and column. Its text is written for the caller: no traces, no file
paths, no SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match

from tuner.api.estimates import TooFewKernels
from tuner.api.headers import SECURITY_HEADERS
from tuner.api.learning import NothingToLearn
from tuner.api.npz import ArrayError
from tuner.api.targets import UnknownTarget
from tuner.db.errors import IdempotencyConflict, IllegalTransition, LeaseHeld, NotFound
from tuner.errors import DatabaseError, TunerError, UsageError, WorkloadError
from tuner.export.artifacts import ArtifactError, ArtifactMissing
from tuner.measure.objective import NotMeasured

MEDIA_TYPE = "application/problem+json"
# an identifier, never fetched: RFC 2606 reserves .invalid
TYPE_BASE = "https://tuner.invalid/problems/"
UNAVAILABLE = "the service cannot reach its storage at the moment; try again shortly"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
RETRYABLE = frozenset({408, 429, 502, 503, 504})

log = structlog.get_logger("api")


class ProblemBody(BaseModel):
    """The body of every answer of status 400 and above."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": TYPE_BASE + "invalid_workload",
                "title": "Unprocessable Content",
                "status": 422,
                "detail": "line 2, column 14: 'K' is not a tensor of this kernel",
                "instance": "/v1/jobs",
                "code": "invalid_workload",
                "request_id": "0f3b9f0c3b0a4a3f",
                "retryable": False,
                "line": 2,
                "column": 14,
            },
        }
    )

    type: str = Field(description="identifies the kind of problem; ends in its code")
    title: str = Field(description="the status in words")
    status: int
    detail: str = Field(description="what is wrong, with the value, the limit and the way out")
    instance: str = Field(description="path of the request")
    code: str = Field(description="stable name of the kind of problem")
    request_id: str = Field(
        description="the same as in the X-Request-ID header and in the service's log"
    )
    retryable: bool = Field(description="whether the same request may succeed later")
    line: int | None = Field(default=None, description="line in the notation, from 1")
    column: int | None = Field(default=None, description="column in the notation, from 1")
    parameter: str | None = Field(
        default=None, description="name of the operator's parameter at fault"
    )
    errors: list[dict[str, str]] | None = Field(
        default=None, description="each field at fault: location and message"
    )


class Problem(HTTPException):
    """A refusal raised anywhere in a request.

    `extra` is added to the body and may hold only fields of `ProblemBody`.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(status, detail, dict(headers) if headers else None)
        self.code = code
        self.extra = dict(extra or {})


def problem_response(
    request: Request,
    *,
    status: int,
    code: str,
    detail: str,
    headers: Mapping[str, str] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> JSONResponse:
    body = ProblemBody(
        type=TYPE_BASE + code,
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        instance=request.url.path,
        code=code,
        request_id=request.scope.get("request_id", ""),
        retryable=status in RETRYABLE,
        **(extra or {}),
    )
    return JSONResponse(body.model_dump(exclude_none=True), status, dict(headers or {}), MEDIA_TYPE)


STATUSES: tuple[tuple[type[TunerError], int], ...] = (  # the first that fits
    (WorkloadError, 422),
    (UnknownTarget, 422),
    (TooFewKernels, 422),
    (NotMeasured, 422),
    (NothingToLearn, 422),
    (ArrayError, 422),
    (NotFound, 404),
    (ArtifactMissing, 404),
    (IllegalTransition, 409),
    (IdempotencyConflict, 409),
    (LeaseHeld, 409),
    (UsageError, 400),
    (DatabaseError, 503),
    (ArtifactError, 503),
)


def status_of(error: TunerError) -> int:
    """HTTP status of one of the product's own errors."""
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 500)


async def on_http_exception(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if isinstance(error, Problem):
        return problem_response(
            request,
            status=error.status_code,
            code=error.code,
            detail=error.detail,
            headers=error.headers,
            extra=error.extra,
        )
    headers = (
        {"Allow": ", ".join(sorted(allowed(request)))}
        if error.status_code == 405
        else error.headers
    )
    names = {
        404: "not_found",
        405: "method_not_allowed",
        400: "invalid_request",
        415: "unsupported_media_type",
    }
    code = names.get(error.status_code, "http_error")
    return problem_response(
        request, status=error.status_code, code=code, detail=str(error.detail), headers=headers
    )


def allowed(request: Request) -> set[str]:
    """Methods that any route accepts at the request's path.

    Starlette itself names only those of the first route.
    """
    scopes = {method: {**request.scope, "method": method} for method in METHODS}
    routes = request.app.routes
    methods = {
        method
        for method, scope in scopes.items()
        if any(route.matches(scope)[0] is Match.FULL for route in routes)
    }
    return methods | ({"HEAD"} if "GET" in methods else set())  # by `HeadAsGet`


async def on_validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    errors = [
        {"location": ".".join(str(part) for part in item["loc"]), "message": str(item["msg"])}
        for item in error.errors()[:20]
    ]
    first = errors[0] if errors else {"location": "body", "message": "cannot be read"}
    return problem_response(
        request,
        status=422,
        code="invalid_request",
        detail=f"{first['location']}: {first['message']}",
        extra={"errors": errors},
    )


async def on_tuner_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TunerError)
    status = status_of(error)
    if status >= 500:
        log.error("request_failed", code=error.code, error=str(error))
    detail = str(error) if status < 500 else UNAVAILABLE if status == 503 else "internal error"
    extra: dict[str, Any] = {}
    if isinstance(error, WorkloadError):
        extra = {"line": error.line, "column": error.column, "parameter": error.parameter}
    headers = {"Retry-After": "2"} if status == 503 else None
    return problem_response(
        request, status=status, code=error.code, detail=detail, headers=headers, extra=extra
    )


async def on_disconnect(request: Request, error: Exception) -> JSONResponse:
    """The connection ended within the body. Nobody reads the answer; log and metrics have it."""
    detail = "the connection ended before the whole body was here; send it again"
    return problem_response(request, status=400, code="invalid_request", detail=detail)


async def on_unexpected(request: Request, error: Exception) -> JSONResponse:
    """An internal error. Runs outside the header middleware, hence sets the headers itself."""
    log.error("unexpected_error", error_type=type(error).__name__, exc_info=error)
    request_id = request.scope.get("request_id", "")
    return problem_response(
        request,
        status=500,
        code="internal_error",
        detail=f"internal error; give request id {request_id} when reporting it",
        headers={**SECURITY_HEADERS, "X-Request-ID": request_id},
    )


def install(app: FastAPI) -> None:
    app.add_exception_handler(HTTPException, on_http_exception)
    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(TunerError, on_tuner_error)
    app.add_exception_handler(ClientDisconnect, on_disconnect)
    app.add_exception_handler(Exception, on_unexpected)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route in OpenAPI, for statuses that are problems."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in statuses
    }
