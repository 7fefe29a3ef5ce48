"""The page of a trial: its samples, conditions and config, or the text of its failure."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from tuner.api.dashboard.job_view import load
from tuner.api.dashboard.pages import PageRoute, render
from tuner.api.dashboard.sessions import Viewer
from tuner.api.dashboard.trial_table import outcome_of
from tuner.api.routes.jobs import JobId
from tuner.api.service import ServiceDep
from tuner.db import trials

router = APIRouter(prefix="/jobs", route_class=PageRoute)


@router.get("/{job_id}/trials/{number}")
def page(
    job_id: JobId,
    number: Annotated[int, Path(ge=0, le=2**31 - 1)],
    request: Request,
    caller: Viewer,
    service: ServiceDep,
    task: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
) -> Response:
    with service.database.read() as session:
        view = load(session, job_id, caller, task)
        stored = trials.get(session, job_id, number, task)
    return render(
        request,
        "trial.html",
        {"view": view, "trial": stored, "outcome": outcome_of(stored)},
        caller=caller,
    )
