"""The API's stream of a job's events, for pages, whose callers have a session."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from tuner.api.dashboard.pages import PageRoute
from tuner.api.dashboard.sessions import Viewer
from tuner.api.routes.events import stream_events
from tuner.api.routes.jobs import JobId
from tuner.api.service import ServiceDep

router = APIRouter(prefix="/jobs", route_class=PageRoute)


@router.get("/{job_id}/events")
async def events(
    job_id: JobId,
    request: Request,
    caller: Viewer,
    service: ServiceDep,
    last_event_id: Annotated[str | None, Header(max_length=20, pattern=r"^[0-9]{0,18}$")] = None,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
) -> Response:
    return await stream_events(job_id, caller, service, last_event_id, after)
