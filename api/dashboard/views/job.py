"""The page of a job, and its parts, which the page's scripts fetch one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from tuner.api.artifacts import DownloadHeaders
from tuner.api.auth import Caller, take_work
from tuner.api.dashboard import history
from tuner.api.dashboard.charts import curve as curves
from tuner.api.dashboard.charts import plots
from tuner.api.dashboard.job_view import NEXT, JobView, curve_of, load, unread
from tuner.api.dashboard.knob_view import knob_rows, parallel
from tuner.api.dashboard.model_view import HEAVY, is_described, shape_of
from tuner.api.dashboard.model_view import load as load_model
from tuner.api.dashboard.pages import PageRoute, redirect, render
from tuner.api.dashboard.prediction_plot import prediction_plot
from tuner.api.dashboard.sessions import Form, Submitter, Viewer
from tuner.api.dashboard.trial_table import FilterQuery, Selection, selection, table
from tuner.api.problems import Problem
from tuner.api.routes.jobs import JobId, cancel_job, resume_job, seen
from tuner.api.routes.models import get_library
from tuner.api.service import Service, ServiceDep
from tuner.db import runners, targets, trials
from tuner.db.engine import Session
from tuner.db.jobs import FINISHED, Job

router = APIRouter(prefix="/jobs", route_class=PageRoute)

TaskQuery = Annotated[int, Query(ge=0, le=2**31 - 1)]
PARTS = ("head", "curve", "trials", "analysis", "model")
FAILURE_GROUPS = 20


@router.get("/{job_id}")
def page(
    job_id: JobId,
    request: Request,
    caller: Viewer,
    service: ServiceDep,
    query: FilterQuery,
    task: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    x: str = "trial",
) -> Response:
    with service.database.read() as session:
        job = seen(session, job_id, caller)
        if task is None and is_described(job):
            shown = model(session, service, job, caller)
            return render(request, "model.html", shown, caller=caller)
        if not job.tasks:
            return render(request, "job_unread.html", of_model(session, job, caller), caller=caller)
        view = load(session, job_id, caller, task or 0)
        chosen = selection(query)
        context = {
            "view": view,
            **head(job, caller),
            **curve(session, view, x),
            **table(session, view, chosen),
        }
    return render(request, "job.html", context, caller=caller)


@router.get("/{job_id}/parts/{part}")
def fragment(
    job_id: JobId,
    part: str,
    request: Request,
    caller: Viewer,
    service: ServiceDep,
    query: FilterQuery,
    task: TaskQuery = 0,
    x: str = "trial",
) -> Response:
    """One part of the page as markup, without the page around it."""
    if part not in PARTS:
        raise Problem(
            404, "not_found", f"there is no part {part[:40]!r}; a job has {', '.join(PARTS)}"
        )
    with service.database.read() as session:
        if part == "model":
            shown = model(session, service, seen(session, job_id, caller), caller)
            return render(request, "job_model.html", shown, caller=caller)
        view = load(session, job_id, caller, task)
        context: dict[str, Any] = {"view": view}
        match part:
            case "head":
                context |= {**head(view.job, caller), **curve(session, view, x)}
            case "curve":
                context |= curve(session, view, x)
            case "trials":
                context |= table(session, view, selection(query))
            case _:
                context |= analysis(session, view, request, selection(query))
    return render(request, f"job_{part}.html", context, caller=caller)


@router.get("/{job_id}/library")
def library(
    job_id: JobId,
    caller: Viewer,
    service: ServiceDep,
    headers: Annotated[DownloadHeaders, Depends()],
) -> Response:
    """The API's library of a model for the holder of a session."""
    return get_library(job_id, caller, service, headers)


@router.post("/{job_id}/cancel")
def cancel(job_id: JobId, caller: Submitter, service: ServiceDep, fields: Form) -> Response:
    cancel_job(job_id, caller, service)
    return redirect(f"/jobs/{job_id}")


@router.post("/{job_id}/resume")
def resume(job_id: JobId, caller: Submitter, service: ServiceDep, fields: Form) -> Response:
    take_work(service, caller)
    resume_job(job_id, caller, service)
    return redirect(f"/jobs/{job_id}")


def head(job: Job, caller: Caller) -> Mapping[str, Any]:
    mine = caller.sees_all or job.owner == caller.key_id
    change = mine and caller.may("submit")
    return {
        "can_cancel": change and job.state in ("queued", "running"),
        "can_resume": change and job.state in ("cancelled", "failed"),
        "described": is_described(job),
    }


def of_model(session: Session, job: Job, caller: Caller) -> Mapping[str, Any]:
    """The context for a model's job without workloads: its file was not or cannot be read."""
    return {
        "job": job,
        "target": targets.get(session, job.target),
        "unread": unread(job),
        "finished": job.state in FINISHED,
        "waiting": runners.waiting(session, [job]).get(job.id),
        **head(job, caller),
    }


def model(session: Session, service: Service, job: Job, caller: Caller) -> Mapping[str, Any]:
    """The context of a model's page. Raises Problem where it has not been read."""
    return {
        "model": load_model(session, service, job),
        "shape_of": shape_of,
        "heavy": HEAVY,
        **head(job, caller),
    }


def curve(session: Session, view: JobView, x: str) -> Mapping[str, Any]:
    drawn, expected = curve_of(session, view, by_time=x == "time")
    return {
        "curve": drawn,
        "curve_svg": curves.draw(drawn),
        "curve_words": curves.summary(drawn),
        "points": curves.points_json(drawn),
        "records": curves.records_table(drawn, view.default_s),
        "expected": expected,
        "expected_trials": NEXT,
    }


def analysis(
    session: Session, view: JobView, request: Request, chosen: Selection
) -> Mapping[str, Any]:
    analysed = history.analysis(session, view.job.id, view.position)
    return {
        "analysis": analysed,
        "groups": trials.failure_groups(session, view.job.id, limit=FAILURE_GROUPS),
        "counts": trials.failure_counts(session, view.job.id, view.position),
        "knobs": knob_rows(analysed, request.query_params, chosen),
        "parallel_svg": parallel(analysed, request.query_params, chosen),
        "predictions": prediction_plot(analysed.predictions),
        "correlation_svg": plots.correlations(analysed.correlations)
        if analysed.correlations
        else None,
    }
