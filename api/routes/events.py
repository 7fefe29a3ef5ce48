"""A job's events as a stream of server-sent events.

The stream has all events after the number that the client has seen, then new ones until
the job ends. A client that reconnects with the last number of a finished job gets 204,
which tells browsers to stop reconnecting.
https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

import structlog
from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from tuner.api import answers
from tuner.api.auth import Reader
from tuner.api.problems import Problem, documented
from tuner.api.routes.jobs import JobId, seen
from tuner.api.schemas import EventAnswer
from tuner.api.service import Service, ServiceDep
from tuner.db import events, jobs, keys
from tuner.db.events import Event
from tuner.db.jobs import FINISHED
from tuner.errors import DatabaseError

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
log = structlog.get_logger("api.events")

MEDIA_TYPE = "text/event-stream"
# How OpenAPI describes one event of a stream:
# https://spec.openapis.org/oas/v3.2.0.html#server-sent-events
ITEM = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "the event's number"},
        "event": {"type": "string", "description": "its kind"},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": EventAnswer.model_json_schema(),
        },
        "retry": {"type": "integer"},
    },
}
BATCH = 500
RECONNECT_MS = 1000
UNREAD_S = 30.0  # that what was sent may wait for its client, beyond the stream's time


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsentEvents:
    """Events of a job that a stream has not sent yet."""

    events: tuple[Event, ...]
    over: bool  # the job is finished and these are its last events


def read_news(service: Service, job_id: str, after: int) -> UnsentEvents:
    with service.database.read() as session:
        job = jobs.get(session, job_id)
        batch = events.after(session, job_id, after, limit=BATCH)
    return UnsentEvents(events=batch, over=job.state in FINISHED and len(batch) < BATCH)


def encode(event: Event) -> bytes:
    data = answers.event(event).model_dump_json(by_alias=True)
    return format_sse_event(data_str=data, event=event.kind, id=str(event.sequence))


def still_allowed(service: Service, key_id: str | None) -> bool:
    if key_id is None:
        return True
    with service.database.read() as session:
        return keys.holds_good(session, key_id)


class EventStream(StreamingResponse):
    """A stream of a job's events, which counts as its holder's for as long as it is sent."""

    def __init__(self, service: Service, job_id: str, after: int, key_id: str | None) -> None:
        # Proxies that buffer would hold events back.
        headers = {"X-Accel-Buffering": "no"}
        content = stream(service, job_id, after, key_id)
        super().__init__(content, media_type=MEDIA_TYPE, headers=headers)
        self._service, self._job_id, self._holder = service, job_id, key_id or ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with (
            self._service.metrics.streams.track_inprogress(),
            self._service.feed.following(self._job_id, self._holder),
            suppress(TimeoutError),
        ):
            # A client that reads nothing holds up the sending, where no deadline is looked at.
            async with asyncio.timeout(self._service.options.event_stream_s + UNREAD_S):
                await super().__call__(scope, receive, send)


async def stream(
    service: Service, job_id: str, after: int, key_id: str | None
) -> AsyncIterator[bytes]:
    """The events after the number `after`, in order and without gaps or repetitions."""
    loop, ping_s = asyncio.get_running_loop(), service.options.event_ping_s
    deadline, check_at = loop.time() + service.options.event_stream_s, loop.time() + ping_s
    yield format_sse_event(comment="events of " + job_id, retry=RECONNECT_MS)
    while not service.feed.closed and loop.time() < deadline:
        try:
            if loop.time() >= check_at:
                check_at = loop.time() + ping_s
                if not await run_in_threadpool(still_allowed, service, key_id):
                    return  # the key was revoked or has expired
            news = await run_in_threadpool(read_news, service, job_id, after)
        except DatabaseError as error:
            log.warning("events_unavailable", job=job_id, error=str(error))
            yield KEEPALIVE_COMMENT
            await asyncio.sleep(1.0)
            continue
        for event in news.events:
            after = event.sequence
            yield encode(event)
        if news.over:
            return
        if not news.events:
            wait_s = min(ping_s, max(0.0, deadline - loop.time()))
            if not await service.feed.wait_beyond(job_id, after, timeout_s=wait_s):
                yield KEEPALIVE_COMMENT


@router.get(
    "/{job_id}/events",
    response_class=Response,
    responses={
        200: {"description": "The stream", "content": {MEDIA_TYPE: {"schema": ITEM}}},
        204: {"description": "The job is finished and has no further events"},
        **documented(401, 403, 404, 422, 429, 503),
    },
)
async def stream_events(
    job_id: JobId,
    caller: Reader,
    service: ServiceDep,
    last_event_id: Annotated[
        str | None,
        Header(max_length=20, pattern=r"^[0-9]{0,18}$", description="replay what follows"),
    ] = None,
    after: Annotated[
        int, Query(ge=0, le=2**53, description="the same for clients that cannot set headers")
    ] = 0,
) -> Response:
    """The job's events in order, each with its number as `id` and its kind as `event`."""
    position = int(last_event_id) if last_event_id else after

    def finished() -> bool:
        with service.database.read() as session:
            job = seen(session, job_id, caller)
            # Retention may have deleted the last ones.
            return job.state in FINISHED and not events.after(session, job_id, position, limit=1)

    if await run_in_threadpool(finished):
        return Response(status_code=204)
    # From here to where the stream is counted nothing waits, so that none comes in between.
    if service.feed.streams >= service.options.max_streams:
        raise Problem(
            429,
            "too_many_streams",
            "this service has as many event streams as it can hold",
            headers={"Retry-After": "5"},
        )
    most = service.options.max_key_streams
    if service.feed.streams_of(caller.key_id or "") >= most:
        detail = (
            f"this key has {most} event streams open, its limit; close one, or ask GET "
            f"/v1/jobs for many at once"
        )
        raise Problem(429, "too_many_streams", detail, headers={"Retry-After": "5"})
    return EventStream(service, job_id, position, caller.key_id)
