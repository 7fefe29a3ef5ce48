"""The client before an address where no service of ours answers."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator

import httpx
import pytest

from tuner.client import Client
from tuner.connection import ServiceError, trusted
from tuner.errors import UsageError

Answer = Callable[[httpx.Request], httpx.Response]


def client(answer: Answer, waited: list[float] | None = None) -> Client:
    kept: list[float] = [] if waited is None else waited
    return Client("http://h", transport=httpx.MockTransport(answer), sleep=kept.append)


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(200, html="<html>It works!</html>"),
        httpx.Response(200, json={"status": "green"}),
        httpx.Response(200, content=b"\xff\xfe"),
        httpx.Response(204),
    ],
)
def test_an_answer_of_something_else_is_named(response: httpx.Response) -> None:
    with client(lambda request: response) as asked:
        with pytest.raises(ServiceError, match=r"http://h/v1/health/ready.*check the address"):
            asked.health()
        with pytest.raises(ServiceError, match="check the address"):
            list(asked.jobs())


@pytest.mark.parametrize("content", [b"\xff\xfe", b"<html>", b"[" * 100_000, b"[]", b""])
def test_a_refusal_in_another_form_has_its_status(content: bytes) -> None:
    with (
        client(lambda request: httpx.Response(403, content=content)) as asked,
        pytest.raises(ServiceError, match="403"),
    ):
        asked.health()


@pytest.mark.parametrize(
    ("retry_after", "least_s", "most_s"),
    [
        ("3", 3.0, 3.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0, 1.0),
        ("nan", 0.0, 1.0),
        ("-1", 0.0, 1.0),
        ("999999999", 300.0, 300.0),
    ],
)
def test_a_pause_is_what_the_answer_asks_for_within_reason(
    retry_after: str, least_s: float, most_s: float
) -> None:
    busy = httpx.Response(503, json={"retryable": True}, headers={"Retry-After": retry_after})
    ready = httpx.Response(200, json={"status": "ok", "version": "1"})
    answers: Iterator[httpx.Response] = iter([busy, ready])
    waited: list[float] = []
    with client(lambda request: next(answers), waited) as asked:
        asked.health()
    assert len(waited) == 1 and least_s <= waited[0] <= most_s


@pytest.mark.parametrize("server", ["http://h:port", "http://h:999999", "http://[::1"])
def test_an_address_that_is_none_is_refused(server: str) -> None:
    with pytest.raises(UsageError, match="is no address of a service"):
        Client(server)


@pytest.mark.parametrize("key", ["tk_…", "tk_a_b\r", "tk_a b"])
def test_a_key_that_no_header_holds_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="as `tuner keys create` printed it") as raised:
        Client("http://h", key=key)
    assert key not in str(raised.value)


def test_authorities_are_loaded_where_tls_is_spoken() -> None:
    assert trusted("https://h") is True and trusted("HTTPS://h") is True
    without = trusted("http://h")
    assert isinstance(without, ssl.SSLContext) and without.get_ca_certs() == []
    assert without.verify_mode is ssl.CERT_REQUIRED and without.check_hostname
