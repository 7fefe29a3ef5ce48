"""Requests to a service over HTTP, with retries.

Requests that are safe to repeat are repeated with growing pauses, after connection
errors and after answers that ask for it.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from tuner.api.schemas import EventAnswer, Page
from tuner.errors import TunerError, UsageError

NO_CONTENT, BAD_GATEWAY = 204, 502
KEY = re.compile("[!-~]+")  # what a header may hold
SECONDS = re.compile("[0-9]{1,9}")
LONGEST_WAIT_S = 300.0
LAST_PORT = 65535
EVENT_STREAM = "text/event-stream"
Model = TypeVar("Model", bound=BaseModel)
Filter = str | int | Sequence[str] | None  # a sequence: any of these


class ServiceError(TunerError):
    """The service refused a request.

    `status` is HTTP's. `line` and `column` are set for an error in a notation.
    """

    code = "service"

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail") or f"the service answered {status}"))
        self.status = status
        self.code = str(problem.get("code", "http_error"))
        self.request_id = str(problem.get("request_id", ""))
        self.retryable = bool(problem.get("retryable", False))
        self.line: int | None = problem.get("line")
        self.column: int | None = problem.get("column")


class ServiceUnreachable(TunerError):
    """The service did not answer, after all retries."""

    code = "service_unreachable"


class NoMoreEvents(Exception):
    """The job is finished, and there are no events after those that were received."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often a request is tried, and how long the client pauses in between."""

    attempts: int = 5
    first_pause_s: float = 0.2  # doubled each time
    longest_pause_s: float = 10.0


class Connection:
    """A connection to one service. It is thread-safe."""

    def __init__(
        self,
        server: str,
        *,
        key: str | None,
        timeout_s: float,
        retries: Retries,
        transport: httpx.BaseTransport | None,
        sleep: Callable[[float], None],
    ) -> None:
        """Raises UsageError for an address or a key that no request can have."""
        if key and not KEY.fullmatch(key):
            raise UsageError(
                "the key of the service has characters that no key has; give it as `tuner keys "
                "create` printed it: tk_, its id, _ and its secret"
            )
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            self._http = httpx.Client(
                base_url=server.rstrip("/") + "/v1",
                headers=headers,
                timeout=httpx.Timeout(timeout_s, connect=10.0),
                verify=trusted(server),
                transport=transport,
            )
            if (self._http.base_url.port or 0) > LAST_PORT:
                raise httpx.InvalidURL(f"its port is above {LAST_PORT}")
        except httpx.InvalidURL as error:
            raise UsageError(
                f"{server!r} is no address of a service: {error}; write http://HOST:PORT"
            ) from error
        self.retries, self.sleep = retries, sleep

    @property
    def address(self) -> str:
        return str(self._http.base_url)

    def close(self) -> None:
        self._http.close()

    def model(self, model: type[Model], method: str, path: str, **options: Any) -> Model:
        """The answer to a request, checked against its schema.

        Raises ServiceError, as for a refusal, where something other than a service answers.
        """
        answer = self.call(method, path, **options)
        try:
            return model.model_validate_json(answer.content)
        except ValidationError as error:
            raise ServiceError(BAD_GATEWAY, _foreign(answer)) from error

    def pages(
        self, model: type[Model], path: str, filters: Mapping[str, Filter]
    ) -> Iterator[Model]:
        """The items of all pages of a list."""
        given = {name: value for name, value in filters.items() if value is not None}
        cursor: str | None = None
        while True:
            params = given if cursor is None else given | {"cursor": cursor}
            # A class made at run time.
            page = self.model(Page[model], "GET", path, params=params)  # type: ignore[valid-type]
            yield from page.items
            cursor = page.next
            if cursor is None:
                return

    def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """The successful answer to a request.

        Raises ServiceError for a refusal, ServiceUnreachable after all retries.
        """
        for attempt in range(1, self.retries.attempts + 1):
            last = attempt == self.retries.attempts
            try:
                response = self._http.request(method, path, **options)
            except (httpx.TransportError, httpx.DecodingError) as error:
                if last:
                    raise ServiceUnreachable(
                        f"{self.address} does not answer: {error}; is the service running there?"
                    ) from error
                self.pause(attempt)
                continue
            if response.is_success:
                return response
            refusal = refused(response)
            if last or not refusal.retryable:
                raise refusal
            self.pause(attempt, _retry_after_s(response))
        raise AssertionError("the last attempt returns or raises")

    def pause(self, attempt: int, least_s: float = 0.0) -> None:
        """Sleeps after a failed attempt, the first of which is number 1."""
        growing_s = self.retries.first_pause_s * 2.0 ** max(0, attempt - 1)
        self.sleep(max(min(growing_s, self.retries.longest_pause_s), least_s))

    def stream(self, job: str, after: int) -> Iterator[EventAnswer]:
        """The events of a job numbered above `after`, as they come, over one connection.

        Raises NoMoreEvents, and ServiceError for a refusal and where something other than a
        service answers.
        """
        headers = {"Last-Event-ID": str(after), "Accept": EVENT_STREAM}
        timeout = httpx.Timeout(10.0, read=60.0)  # the service sends a comment every 15 s
        with self._http.stream(
            "GET", f"/jobs/{job}/events", headers=headers, timeout=timeout
        ) as response:
            if not response.is_success:
                response.read()
                raise refused(response)
            if response.status_code == NO_CONTENT:
                raise NoMoreEvents
            if not response.headers.get("content-type", "").startswith(EVENT_STREAM):
                raise ServiceError(BAD_GATEWAY, _foreign(response))
            data: list[str] = []
            for line in response.iter_lines():
                if line.startswith("data:"):
                    data.append(line[5:].removeprefix(" "))
                elif not line and data:
                    yield EventAnswer.model_validate_json("\n".join(data))
                    data = []


def trusted(server: str) -> ssl.SSLContext | bool:
    """What certificates of a server are held against: httpx's `verify`.

    Loading the authorities takes as long as many requests. Where no TLS is spoken there are none,
    so that nothing would be trusted.
    """
    return server.lower().startswith("https:") or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _foreign(answer: httpx.Response) -> Mapping[str, Any]:
    """The problem of an answer that no service of this version gives."""
    kind = answer.headers.get("content-type", "of no content type")
    detail = (
        f"{answer.request.url} answered with something else than a service does ({kind}); check "
        f"the address, and that service and program have versions that go together"
    )
    return {"detail": detail, "code": "foreign_answer"}


def _retry_after_s(response: httpx.Response) -> float:
    """Seconds that an answer asks to wait; 0 for a date, as proxies write it."""
    text = response.headers.get("retry-after", "")
    return min(float(text), LONGEST_WAIT_S) if SECONDS.fullmatch(text) else 0.0


def refused(response: httpx.Response) -> ServiceError:
    """The error of an unsuccessful answer.

    An answer that does not come from the service, but from a proxy, has no problem body.
    """
    try:
        problem = response.json()
    except (ValueError, RecursionError):
        detail = f"{response.request.url} answered {response.status_code}"
        problem = {"detail": detail, "retryable": response.status_code in (502, 503, 504)}
    return ServiceError(response.status_code, problem if isinstance(problem, dict) else {})
