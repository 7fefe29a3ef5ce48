"""The layers around every request: bodies are counted as they arrive, foreign pages
refused, headers on every answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.datastructures import URL, Headers
from starlette.responses import StreamingResponse

from tuner.api import problems
from tuner.api.body_limit import BodyLimit, Limit
from tuner.api.cross_origin import refusal
from tuner.api.head import HeadAsGet
from tuner.api.headers import SECURITY_HEADERS, SecurityHeaders
from tuner.api.redirects import RelativeRedirects, relative
from tuner.errors import DatabaseError, WorkloadError

PAUSE_S = 0.1  # for the next part of a body


def application() -> FastAPI:
    app = FastAPI()
    problems.install(app)
    app.add_middleware(HeadAsGet)
    app.add_middleware(RelativeRedirects)
    limits = {"/large": Limit(most_bytes=20, way_out="cut it in two")}
    otherwise = Limit(most_bytes=10)
    app.add_middleware(
        BodyLimit, limit_of=lambda path: limits.get(path, otherwise), pause_s=PAUSE_S
    )
    app.add_middleware(SecurityHeaders)

    @app.post("/echo")
    @app.post("/large")
    async def echo(request: Request) -> int:
        return len(await request.body())

    @app.post("/patient")
    async def patient(request: Request) -> int:
        size = len(await request.body())
        await asyncio.sleep(3 * PAUSE_S)
        return size

    @app.get("/workload")
    def workload() -> None:
        raise WorkloadError("no tensor 'K'", line=2, column=14)

    @app.get("/database")
    def database() -> None:
        raise DatabaseError("/var/lib/secret.db is locked")

    @app.get("/endless")
    async def endless() -> StreamingResponse:
        async def forever() -> AsyncIterator[bytes]:
            while True:
                yield b"x"
                await asyncio.sleep(0.01)

        return StreamingResponse(forever(), media_type="text/plain")

    @app.get("/fault")
    def fault() -> None:
        raise KeyError("secret")

    return app


def call(method: str, path: str, **options: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(application(), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **options)

    return asyncio.run(send())


@pytest.mark.parametrize(
    ("location", "sent"),
    [
        ("http://localhost/fault?x=1", "/fault?x=1"),
        ("http://localhost//evil.example/", "http://localhost//evil.example/"),
        ("http://localhost", "http://localhost"),
        ("https://elsewhere.example/", "https://elsewhere.example/"),
        ("/fault", "/fault"),
    ],
)
def test_redirects_within_the_service_name_no_scheme(location: str, sent: str) -> None:
    """Which may be another one for the client than it is for the service."""
    assert relative(location, URL("http://localhost/echo/")) == sent


def test_a_slash_too_many_leads_to_the_same_scheme() -> None:
    response = call("GET", "/fault/?x=1")
    assert (response.status_code, response.headers["location"]) == (307, "/fault?x=1")


def test_head_has_the_head_of_get() -> None:
    for path in ("/workload", "/nothing", "/endless"):
        head = call("HEAD", path)
        assert head.content == b"" and head.headers["content-type"]
        if path != "/endless":
            assert dict(call("GET", path).headers) == dict(head.headers)


async def chunks(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * 5


def test_the_limit_holds_with_and_without_a_length() -> None:
    assert call("POST", "/echo", content=b"x" * 10).json() == 10
    assert call("POST", "/echo", content=b"x" * 11).status_code == 413
    assert call("POST", "/echo", content=chunks(2)).json() == 10
    refused = call("POST", "/echo", content=chunks(3))
    assert refused.status_code == 413
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["code"] == "body_too_large"
    assert call("POST", "/large", content=chunks(4)).json() == 20
    refused = call("POST", "/large", content=chunks(5))
    assert refused.json()["detail"] == (
        "the body has 25 bytes or more; this address takes at most 20: cut it in two"
    )


@pytest.mark.parametrize("between_s", [10.0, 0.03])
def test_a_body_that_does_not_come_is_given_up(between_s: float) -> None:
    """Whether it stops or comes byte by byte. An answer may take as long as it likes."""

    async def bytewise() -> AsyncIterator[bytes]:
        for _ in range(19):
            yield b"x"
            await asyncio.sleep(between_s)

    refused = call("POST", "/large", content=bytewise())
    assert (refused.status_code, refused.json()["code"]) == (408, "body_too_slow")
    assert refused.json()["retryable"]
    assert call("POST", "/patient", content=chunks(2)).json() == 10


def test_a_wrong_length_is_refused() -> None:
    response = call("POST", "/echo", content=b"x", headers={"Content-Length": "-1"})
    assert response.status_code == 400


def test_every_answer_has_the_security_headers() -> None:
    responses: list[httpx.Response] = [
        call("GET", "/nothing"),
        call("GET", "/fault"),
        call("POST", "/echo", content=b"x"),
        call("POST", "/echo", content=b"x" * 99),
    ]
    for response in responses:
        assert {name.lower() for name in SECURITY_HEADERS} <= set(response.headers)


def test_a_workloads_problem_has_line_and_column() -> None:
    body = call("GET", "/workload").json()
    assert (body["status"], body["code"], body["retryable"]) == (422, "invalid_workload", False)
    assert (body["line"], body["column"]) == (2, 14)


@pytest.mark.parametrize(
    ("path", "status", "retryable"), [("/database", 503, True), ("/fault", 500, False)]
)
def test_faults_say_nothing_of_the_inside(path: str, status: int, retryable: bool) -> None:
    response = call("GET", path)
    assert response.status_code == status
    assert response.json()["retryable"] is retryable
    assert "secret" not in response.text and "Traceback" not in response.text


@pytest.mark.parametrize(
    ("method", "headers", "loopback_only", "refused"),
    [
        ("POST", {"host": "localhost:8077"}, True, False),
        ("POST", {"host": "127.0.0.1:8077", "origin": "http://127.0.0.1:8077"}, True, False),
        ("GET", {"host": "[::1]:8077"}, True, False),
        ("GET", {"host": "evil.example"}, True, True),
        ("GET", {"host": ""}, True, True),
        ("GET", {"host": "[::1"}, True, True),
        ("GET", {"host": "tuner.example"}, False, False),
        ("POST", {"host": "tuner.example", "origin": "https://evil.example"}, False, True),
        ("POST", {"host": "tuner.example", "origin": "null"}, False, True),
        ("GET", {"host": "tuner.example", "origin": "https://evil.example"}, False, False),
        ("POST", {"host": "Tuner.example", "origin": "https://tuner.example"}, False, False),
    ],
)
def test_foreign_pages_are_refused(
    method: str, headers: dict[str, str], loopback_only: bool, refused: bool
) -> None:
    assert (refusal(Headers(headers), method, loopback_only=loopback_only) is not None) is refused
