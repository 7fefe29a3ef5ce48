"""The page of a job, and its parts, which the page's scripts fetch one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response

from tuner.api.artifacts import DownloadHeaders
from tuner.api.auth import Caller, take_work
from tuner.api.dashboard import history
from tuner.api.dashboard.charts import curve as curves
from tuner.api.dashboard.charts import plots
from tuner.api.dashboard.charts.curve import Axes, Curve
from tuner.api.dashboard.history import Analysis
from tuner.api.dashboard.job_view import NEXT, JobView, curve_of, load, unread
from tuner.api.dashboard.knob_view import knob_rows, matching, parallel, static_parallel
from tuner.api.dashboard.model_view import HEAVY, is_described, shape_of
from tuner.api.dashboard.model_view import load as load_model
from tuner.api.dashboard.pages import PageRoute, Theme, image, redirect, render
from tuner.api.dashboard.prediction_plot import prediction_plot
from tuner.api.dashboard.sessions import Form, Submitter, Viewer
from tuner.api.dashboard.trial_table import FilterQuery, Selection, selection, table, within
from tuner.api.problems import Problem
from tuner.api.routes.jobs import JobId, cancel_job, resume_job, seen
from tuner.api.routes.models import get_library
from tuner.api.service import Service, ServiceDep
from tuner.db import runners, targets, trials
from tuner.db.engine import Session
from tuner.db.jobs import FINISHED, Job
from tuner.errors import UsageError
from tuner.search.expectation import Expectation

router = APIRouter(prefix="/jobs", route_class=PageRoute)

TaskQuery = Annotated[int, Query(ge=0, le=2**31 - 1)]
Scaling = Literal["linear", "log"]
PARTS = ("head", "curve", "trials", "analysis", "model")
FAILURE_GROUPS = 20
TOPS = (50, 20, 5, 1)  # percentages that the page offers


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveQuery:
    """The axes of the curve as written in the address."""

    by_time: bool
    x_log: bool
    y_log: bool


def curve_query(
    x: str = "trial", xscale: Scaling = "linear", yscale: Scaling = "log"
) -> CurveQuery:
    """The axes of a request: a dependency of routes."""
    return CurveQuery(by_time=x == "time", x_log=xscale == "log", y_log=yscale == "log")


AxesQuery = Annotated[CurveQuery, Depends(curve_query)]


@router.get("/{job_id}")
def page(
    job_id: JobId,
    request: Request,
    caller: Viewer,
    service: ServiceDep,
    query: FilterQuery,
    axes: AxesQuery,
    task: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
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
            **head(session, job, caller),
            **curve(session, view, axes, chosen),
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
    axes: AxesQuery,
    task: TaskQuery = 0,
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
        chosen = selection(query)
        match part:
            case "head":
                context |= {**head(session, view.job, caller), **curve(session, view, axes, chosen)}
            case "curve":
                context |= curve(session, view, axes, chosen)
            case "trials":
                context |= table(session, view, chosen)
            case _:
                context |= analysis(session, view, request, chosen)
    return render(request, f"job_{part}.html", context, caller=caller)


@router.get("/{job_id}/charts/{name}.svg")
def chart(
    job_id: JobId,
    name: Literal["best", "predictions", "correlations", "knobs"],
    request: Request,
    caller: Viewer,
    service: ServiceDep,
    query: FilterQuery,
    axes: AxesQuery,
    task: TaskQuery = 0,
    theme: Theme = "light",
) -> Response:
    """One drawing of the page as an image, with the filters and axes of the address."""
    chosen = selection(query)
    if chosen.error is not None:
        raise UsageError(chosen.error)
    with service.database.read() as session:
        view = load(session, job_id, caller, task)
        if name == "best":
            drawn: str | None = curves.draw(drawn_curve(session, view, axes, chosen)[0])
        else:
            analysed = history.analysis(session, view.job.id, view.position)
            match name:
                case "predictions":
                    drawn = prediction_plot(analysed.predictions).svg
                case "correlations":
                    drawn = correlation_plot(analysed)
                case _:
                    shown = matching(analysed, within(session, view, chosen))
                    drawn = static_parallel(analysed, shown)
    if drawn is None:
        raise Problem(404, "not_found", f"too few trials of job {job_id} for the chart {name!r}")
    return image(request, drawn, f"{job_id}-{name}", theme)


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


def head(session: Session, job: Job, caller: Caller) -> Mapping[str, Any]:
    mine = caller.sees_all or job.owner == caller.key_id
    change = mine and caller.may("submit")
    return {
        "can_cancel": change and job.state in ("queued", "running"),
        "can_resume": change and job.state in ("cancelled", "failed"),
        "described": is_described(job),
        "now": session.now(),
    }


def of_model(session: Session, job: Job, caller: Caller) -> Mapping[str, Any]:
    """The context for a model's job without workloads: its file was not or cannot be read."""
    return {
        "job": job,
        "target": targets.get(session, job.target),
        "unread": unread(job),
        "finished": job.state in FINISHED,
        "waiting": runners.waiting(session, [job]).get(job.id),
        **head(session, job, caller),
    }


def model(session: Session, service: Service, job: Job, caller: Caller) -> Mapping[str, Any]:
    """The context of a model's page. Raises Problem where it has not been read."""
    return {
        "model": load_model(session, service, job),
        "shape_of": shape_of,
        "heavy": HEAVY,
        **head(session, job, caller),
    }


def drawn_curve(
    session: Session, view: JobView, axes: CurveQuery, chosen: Selection
) -> tuple[Curve, Expectation | None]:
    scaled = Axes(x_log=axes.x_log, y_log=axes.y_log, top_percent=chosen.top_percent)
    return curve_of(session, view, by_time=axes.by_time, axes=scaled)


def correlation_plot(analysed: Analysis) -> str | None:
    return plots.correlations(analysed.correlations) if analysed.correlations else None


def curve(
    session: Session, view: JobView, axes: CurveQuery, chosen: Selection
) -> Mapping[str, Any]:
    drawn, expected = drawn_curve(session, view, axes, chosen)
    return {
        "tops": TOPS,
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
    chosen = within(session, view, chosen)
    return {
        "analysis": analysed,
        "groups": trials.failure_groups(session, view.job.id, limit=FAILURE_GROUPS),
        "counts": trials.failure_counts(session, view.job.id, view.position),
        "knobs": knob_rows(analysed, request.query_params, chosen),
        "parallel_svg": parallel(analysed, request.query_params, chosen),
        "predictions": prediction_plot(analysed.predictions),
        "correlation_svg": correlation_plot(analysed),
    }
