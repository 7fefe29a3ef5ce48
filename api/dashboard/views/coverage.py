"""The page of a job's recorded calls: what has kernels, what falls back, what is gained."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from tuner.api.dashboard.pages import PageRoute, render
from tuner.api.dashboard.sessions import Viewer
from tuner.api.routes.coverage import covered_calls
from tuner.api.routes.jobs import JobId
from tuner.api.service import ServiceDep

router = APIRouter(prefix="/jobs", route_class=PageRoute)

MOST_ROWS = 500


@router.get("/{job_id}/coverage")
def page(job_id: JobId, request: Request, caller: Viewer, service: ServiceDep) -> Response:
    job, covered = covered_calls(job_id, caller, service)
    whole_s = covered.total_s or 1.0
    context = {
        "job": job,
        "covered": covered,
        "calls": covered.calls[:MOST_ROWS],
        "left_out": max(len(covered.calls) - MOST_ROWS, 0),
        "shares": {state: covered.seconds(state) / whole_s for state in ("tuned", "untuned")},
        "whole_s": whole_s,
    }
    return render(request, "coverage.html", context, caller=caller)
