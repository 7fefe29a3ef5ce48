"""The page that submits a job, for an operator of the catalogue or a text in the notation.

The workload is checked before anything is queued, and the size of its space is shown.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError

from tuner.api import workloads
from tuner.api.auth import Caller, take_work
from tuner.api.dashboard import limits
from tuner.api.dashboard.pages import PageRoute, redirect, render
from tuner.api.dashboard.sessions import Form, Submitter, Viewer
from tuner.api.routes.jobs import submit_job
from tuner.api.schemas import CatalogueWorkload, JobRequest, NotationWorkload
from tuner.api.service import Service, ServiceDep
from tuner.api.targets import choose
from tuner.db import targets
from tuner.errors import TunerError, UsageError, WorkloadError
from tuner.measure.cache import WARM, check_cache
from tuner.measure.objective import CODE_SIZE, FASTEST, MEMORY, TIME, check_goal, goal_of
from tuner.search.strategies import DEFAULT_STRATEGY, STRATEGIES
from tuner.spaces.by_target import space_of
from tuner.target.target import Target
from tuner.workload.catalogue import CATALOGUE, operator
from tuner.workload.operator import Operator, Param
from tuner.workload.workload import Workload

router = APIRouter(prefix="/submit", route_class=PageRoute)

EXAMPLE = """\
kernel mlp(A: f32[M, K], B: f32[K, N], bias: f32[N]) -> (C: f32[M, N]) {
  T[i, j] += A[i, k] * B[k, j]
  C[i, j] = max(T[i, j] + bias[j], 0)
}
"""
# What a service's jobs may be for: what is measured beside other work.
GOALS = (
    TIME.name,
    *(f"{prefix}{each.name}" for each in (MEMORY, CODE_SIZE) for prefix in ("", "time,")),
)
BUDGET = {
    "trials": "256",
    "seconds": "",
    "threads": "1",
    "cache": WARM,
    "objective": FASTEST.text,
    "strategy": DEFAULT_STRATEGY,
    "seed": "0",
    "priority": "0",
    "target": "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a job is not queued, and where in the form or the text the fault is."""

    message: str
    line: int | None = None
    column: int | None = None
    field: str | None = None  # name of the form's field at fault


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSize:
    """Facts about a workload before it is queued."""

    workload: Workload
    target: Target
    size: int | None  # of its space; None if only workers can tell
    sketches: int
    least_s: float | None


@router.get("")
def page(
    request: Request,
    caller: Viewer,
    service: ServiceDep,
    form: Annotated[str, Query(max_length=20)] = "catalogue",
    op: Annotated[str, Query(max_length=64)] = "matmul",
) -> Response:
    fields = BUDGET | {
        "form": form,
        "op": op,
        "notation": EXAMPLE,
        "shapes": "M=64,N=64,K=64",
        "numerics": "strict",
    }
    given = {name: value for name, value in request.query_params.items() if name != "form_token"}
    return show(request, caller, service, fields | given, checked=False)


@router.post("/check")
def check(request: Request, caller: Viewer, service: ServiceDep, fields: Form) -> Response:
    """The verdict alone, for the script that asks for it during typing."""
    context = verdict(service, fields)
    return render(request, "submit_verdict.html", context, caller=caller)


@router.post("")
def submit(request: Request, caller: Submitter, service: ServiceDep, fields: Form) -> Response:
    if fields.get("action") == "check":
        return show(request, caller, service, fields, checked=True)
    take_work(service, caller)
    try:
        job = submit_job(
            job_request(fields),
            caller,
            service,
            Response(),
            idempotency_key=once(fields),
        )
    except (ValidationError, UsageError) as error:
        return show(request, caller, service, fields, checked=True, refusal=refused(error))
    return redirect(f"/jobs/{job.id}")


def once(fields: Mapping[str, str]) -> str | None:
    """The key by which a form that is sent twice makes one job; a changed one makes another.

    A page that is gone back to has the token that it had.
    """
    if not fields.get("once"):
        return None
    return hashlib.sha256(repr(sorted(fields.items())).encode()).hexdigest()


def show(
    request: Request,
    caller: Caller,
    service: Service,
    fields: Mapping[str, str],
    *,
    checked: bool,
    refusal: Refusal | None = None,
) -> Response:
    try:
        chosen = operator(fields.get("op", ""))
    except WorkloadError as error:
        refusal, chosen = refusal or refused(error), CATALOGUE[0]
    with service.database.read() as session:
        stored_targets = targets.list_all(session)
    context = {
        "fields": BUDGET
        | {"form": "catalogue", "notation": "", "shapes": "", "numerics": "strict", "const": ""}
        | dict(fields),
        "operators": [entry.name for entry in CATALOGUE],
        "operator": chosen,
        "values": {
            param.name: fields.get(f"p_{param.name}", suggested(param)) for param in chosen.params
        },
        "targets": stored_targets,
        "strategies": tuple(STRATEGIES),
        "objectives": GOALS,
        "once": secrets.token_urlsafe(16),
        **(
            verdict(service, fields)
            if checked and refusal is None
            else {"sized": None, "refusal": refusal}
        ),
    }
    return render(request, "submit.html", context, status=422 if refusal else 200, caller=caller)


def suggested(param: Param) -> str:
    """The initial value of a parameter's field in the form."""
    if param.default is not None:
        return str(param.default).lower() if isinstance(param.default, bool) else str(param.default)
    if param.choices:
        return str(param.choices[0])
    return "" if param.usual is None else str(param.usual)


def refused(error: ValidationError | UsageError) -> Refusal:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place = f"{first['loc'][-1]}: " if first["loc"] else ""
        return Refusal(message=place + first["msg"])
    if not isinstance(error, WorkloadError):
        return Refusal(message=str(error))
    field = (
        "notation" if error.line else None if error.parameter is None else f"p_{error.parameter}"
    )
    return Refusal(message=str(error), line=error.line, column=error.column, field=field)


def verdict(service: Service, fields: Mapping[str, str]) -> Mapping[str, Any]:
    """The context of the verdict: either `sized` or `refusal` is not None."""
    try:
        return {"sized": sized(service, fields), "refusal": None}
    except (ValidationError, UsageError) as error:
        return {"sized": None, "refusal": refused(error)}


def sized(service: Service, fields: Mapping[str, str]) -> WorkloadSize:
    request = job_request(fields)
    workload = workloads.parse(request.all_workloads[0])
    with service.database.read() as session:
        target = choose(request.target, targets.list_all(session), service.default_target)
    check_cache(request.cache, target)
    check_goal(goal_of(request.objective), target)
    try:
        space = space_of(workload, target, request.threads).space
        size, sketches = space.size, len(space.combinations)
    except TunerError:
        size, sketches = None, 0  # only the target's workers know its sketches
    return WorkloadSize(
        workload=workload,
        target=target,
        size=size,
        sketches=sketches,
        least_s=limits.least_s(workload, target, request.threads),
    )


def workload_request(fields: Mapping[str, str]) -> CatalogueWorkload | NotationWorkload:
    if fields.get("form") == "notation":
        constants = [
            part for part in fields.get("const", "").replace("+", ",").split(",") if part.strip()
        ]
        text = fields.get("notation", "").replace("\r\n", "\n")
        return NotationWorkload.model_validate(
            {
                "notation": text,
                "shapes": shapes(fields.get("shapes", "")),
                "constants": constants,
                "numerics": fields.get("numerics", "strict"),
            }
        )
    chosen: Operator = operator(fields.get("op", ""))
    params: dict[str, Any] = {}
    for param in chosen.params:
        value = fields.get(f"p_{param.name}", "").strip()
        if value:
            params[param.name] = value
    extra = {
        name: fields[name].strip()
        for name in ("const", "numerics")
        if fields.get(name, "").strip() not in ("", "strict")
    }
    return CatalogueWorkload.model_validate({"op": chosen.name, "params": params | extra})


def shapes(text: str) -> dict[str, int]:
    """The extents of a text such as `M=64, N=64`, by name. Raises UsageError."""
    extents = {}
    for part in text.replace("\n", ",").split(","):
        if not part.strip():
            continue
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not re.fullmatch("[0-9]{1,10}", value):
            raise UsageError(
                f"shape {part.strip()[:40]!r} is not NAME=NUMBER, such as M=64; separate "
                f"several by commas"
            )
        extents[name] = int(value)
    return extents


def number(fields: Mapping[str, str], name: str) -> int | None:
    text = fields.get(name, "").strip()
    if not text:
        return None
    if not re.fullmatch("-?[0-9]{1,18}", text):
        raise UsageError(f"{name} is {text[:40]!r}; give a whole number")
    return int(text)


def job_request(fields: Mapping[str, str]) -> JobRequest:
    budget: dict[str, Any] = {
        name: number(fields, name) for name in ("trials", "threads", "seed", "priority")
    }
    text = fields.get("seconds", "").strip()
    if text:
        try:
            budget["seconds"] = float(text)
        except ValueError as error:
            raise UsageError(f"seconds is {text[:40]!r}; give a number") from error
    given = {name: value for name, value in budget.items() if value is not None}
    given |= {
        "target": fields.get("target") or None,
        "cache": fields.get("cache") or WARM,
        "objective": fields.get("objective") or FASTEST.text,
        "strategy": fields.get("strategy") or DEFAULT_STRATEGY,
    }
    return JobRequest.model_validate(
        given | {"workload": workload_request(fields), "improve": fields.get("improve") == "on"}
    )
