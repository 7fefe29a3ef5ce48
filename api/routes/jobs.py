"""Routes of jobs and their trials."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated

import structlog
from fastapi import APIRouter, Body, Header, Path, Query, Response
from pydantic import BaseModel

from tuner.api import answers, workloads
from tuner.api.answer_queries import job_answers
from tuner.api.auth import Caller, Canceller, Reader, Requester, Resumer
from tuner.api.content_type import JSON_BODY
from tuner.api.problems import Problem, documented
from tuner.api.schemas import (
    IDENTIFIER,
    CreationSort,
    JobAnswer,
    JobRequest,
    Page,
    ResumeRequest,
    State,
    TrialAnswer,
)
from tuner.api.service import Service, ServiceDep
from tuner.api.targets import choose
from tuner.db import jobs, keys, targets, trial_pages
from tuner.db.engine import Session
from tuner.db.jobs import Idempotency, Job, NewJob
from tuner.db.trial_pages import Sort, TrialFilter
from tuner.errors import UsageError
from tuner.measure.cache import check_cache
from tuner.measure.objective import check_goal, goal_of, refuse_beside_work
from tuner.spaces.core.space import Value

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
log = structlog.get_logger("api.jobs")

answer = job_answers
SHARED = ("prepare", "revalidate", "rerace")  # kinds of jobs without an owner
JobId = Annotated[str, Path(pattern=IDENTIFIER, description="the job's id")]
Cursor = Annotated[str | None, Query(max_length=500, description="`next` of the page before")]
Limit = Annotated[int, Query(ge=1, le=1000, description="items on a page")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="chosen by the client; a repeated request with it answers with the first "
        "one's job, within 24 hours",
    ),
]
EXAMPLES = {
    "operator": {
        "value": {
            "workload": {"op": "matmul", "params": {"M": 512, "N": 512, "K": 512}},
            "trials": 128,
        }
    },
    "notation": {
        "value": {
            "workload": {
                "notation": "kernel mlp(A: f32[M, K], B: f32[K, N], bias: f32[N]) -> (C: "
                "f32[M, N]) {\n"
                "  T[i, j] += A[i, k] * B[k, j]\n  C[i, j] = max(T[i, j] + bias[j], 0)\n}",
                "shapes": {"M": 64, "N": 64, "K": 64},
            },
            "seconds": 120,
        }
    },
}


def visible(job: Job, caller: Caller) -> bool:
    """Whether the caller may see the job: its own, a shared one, or as an administrator."""
    return caller.sees_all or job.kind in SHARED or job.owner == caller.key_id


def seen(session: Session, job_id: str, caller: Caller) -> Job:
    """The job if the caller may see it. Raises NotFound, in the same words as for no job."""
    structlog.contextvars.bind_contextvars(job=job_id)
    job = jobs.get(session, job_id)
    if not visible(job, caller):
        raise jobs.unknown(job_id)
    return job


def owned(session: Session, job_id: str, caller: Caller) -> Job:
    """The job if the caller may change it; raises Problem otherwise."""
    job = seen(session, job_id, caller)
    if not caller.sees_all and job.owner != caller.key_id:
        raise Problem(
            403, "forbidden", f"job {job_id} is shared; only an administrator can change it"
        )
    return job


def digest(request: BaseModel) -> str:
    """A hash of the request with its defaults filled in."""
    text = json.dumps(request.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def once(caller: Caller, idempotency_key: str | None, request_digest: str) -> Idempotency | None:
    """By which a repeated request of the caller is known; None where it has no key."""
    if idempotency_key is None:
        return None
    return Idempotency(key=idempotency_key, digest=request_digest, owner=caller.key_id or "")


def repeated(session: Session, idempotency: Idempotency | None) -> Job | None:
    """The job that the same request made before; None where there was none.

    It is looked for first: a request that was accepted is not refused when it comes again,
    because more targets or kernels are there by now.
    """
    job_id = None if idempotency is None else jobs.find_repeated(session, idempotency)
    return None if job_id is None else jobs.get(session, job_id)


def create(
    session: Session,
    service: Service,
    caller: Caller,
    new: NewJob,
    idempotency: Idempotency | None,
) -> tuple[Job, bool]:
    """Queues the job within the caller's quota; returns it and whether it is new.

    A repeated request gets the job of the first one and does not count.
    """
    job, created = jobs.create(session, new, idempotency=idempotency)
    if created:
        check_quota(session, service, caller)
    return job, created


def check_quota(session: Session, service: Service, caller: Caller) -> None:
    """Raises Problem 429 if the caller has more unfinished jobs than its quota.

    The caller's transaction, which has just added one, is then rolled back.
    """
    if caller.key_id is not None:
        # Otherwise concurrent requests would not count each other's jobs.
        keys.hold(session, caller.key_id)
    quota = caller.quota if caller.quota is not None else service.options.max_active_jobs
    if jobs.count(session, owner=caller.key_id) > quota:
        detail = (
            f"this key has {quota} unfinished jobs, its limit; wait for one to finish or cancel one"
        )
        raise Problem(429, "quota_exceeded", detail, headers={"Retry-After": "60"})


def accepted(response: Response, job: JobAnswer, *, created: bool) -> JobAnswer:
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    if not created:
        response.headers["Idempotency-Replayed"] = "true"
    log.info("job_accepted", job=job.id, created=created)
    return job


@router.post(
    "",
    status_code=202,
    dependencies=[JSON_BODY],
    responses=documented(400, 401, 403, 408, 409, 413, 415, 422, 429, 503),
)
def submit_job(
    request: Annotated[JobRequest, Body(openapi_examples=EXAMPLES)],
    caller: Requester,
    service: ServiceDep,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> JobAnswer:
    """Queues the tuning of one workload or several. The answer's `Location` is the job."""
    idempotency = once(caller, idempotency_key, digest(request))
    with service.database.read() as session:
        before = repeated(session, idempotency)
        if before is not None:
            return accepted(response, answer(session, [before])[0], created=False)
    parsed = [service.parsed.parse(each) for each in request.all_workloads]
    goal = goal_of(request.objective)
    refuse_beside_work(goal)
    with service.database.write("submit") as session:
        target = choose(request.target, targets.list_all(session), service.default_target)
        if targets.find(session, target.key) is None:
            targets.remember(session, target)  # a declared GPU without jobs so far
        check_cache(request.cache, target)
        check_goal(goal, target)
        new = NewJob(
            workloads=tuple(workloads.remember(session, workload) for workload in parsed),
            target=target.key,
            threads=request.threads,
            trials=request.trials,
            seconds=request.seconds,
            strategy=request.strategy,
            seed=request.seed,
            priority=request.priority,
            owner=caller.key_id,
            cache=request.cache,
            goal=goal,
            settings={"improve": request.improve},
        )
        job, created = create(session, service, caller, new, idempotency)
        answered = answer(session, [job])[0]
    return accepted(response, answered, created=created)


@router.get("", responses=documented(400, 401, 403, 422, 429, 503))
def list_jobs(
    caller: Reader,
    service: ServiceDep,
    state: Annotated[
        list[State] | None, Query(description="only jobs in one of these states")
    ] = None,
    workload: Annotated[
        str | None, Query(pattern=IDENTIFIER, description="only jobs with the workload of this key")
    ] = None,
    sort: CreationSort = "-created_at",
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page[JobAnswer]:
    """The caller's jobs, newest first; an administrator's list holds everybody's."""
    owner = None if caller.sees_all else caller.key_id
    with service.database.read() as session:
        page = jobs.list_page(
            session,
            state=tuple(state or ()),
            workload=workload,
            owner=owner,
            oldest_first=sort == "created_at",
            cursor=cursor,
            limit=limit,
        )
        return Page(items=answer(session, page.items), next=page.next)


@router.get("/{job_id}", responses=documented(401, 403, 404, 422, 429, 503))
def get_job(job_id: JobId, caller: Reader, service: ServiceDep) -> JobAnswer:
    """One job with its state and the progress of each of its workloads."""
    with service.database.read() as session:
        return answer(session, [seen(session, job_id, caller)])[0]


@router.get("/{job_id}/trials", responses=documented(400, 401, 403, 404, 422, 429, 503))
def list_trials(
    job_id: JobId,
    caller: Reader,
    service: ServiceDep,
    outcome: Annotated[
        list[str] | None, Query(description="ok, failed, or kinds of failure")
    ] = None,
    workload: Annotated[
        int | None, Query(ge=0, le=2**31 - 1, description="position of one workload in the job")
    ] = None,
    min_median_s: Annotated[float | None, Query(ge=0, allow_inf_nan=False)] = None,
    max_median_s: Annotated[float | None, Query(ge=0, allow_inf_nan=False)] = None,
    knob: Annotated[
        list[Annotated[str, Query(max_length=200)]] | None,
        Query(max_length=16, description="NAME=VALUE, the value as JSON; only trials with it"),
    ] = None,
    sort: Annotated[Sort, Query()] = "number",
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[TrialAnswer]:
    """The job's trials, filtered and sorted; sorted by median, failures come last."""
    where = TrialFilter(
        outcome=tuple(outcome or ()),
        position=workload,
        min_median_s=min_median_s,
        max_median_s=max_median_s,
        knobs=dict(knob_filter(text) for text in knob or ()),
    )
    with service.database.read() as session:
        seen(session, job_id, caller)
        page = trial_pages.list_page(
            session, job_id, where=where, sort=sort, cursor=cursor, limit=limit
        )
        return Page(items=[answers.trial(trial) for trial in page.items], next=page.next)


def knob_filter(text: str) -> tuple[str, Value]:
    """Name and value of `NAME=VALUE`.

    A value that is no JSON number or list is taken as text.
    """
    name, equals, written = text.partition("=")
    if not equals or not name or '"' in name or "\x00" in text:
        raise UsageError(f"knob {text[:80]!r} is not NAME=VALUE, such as tile.x=[4,8]")
    try:
        value = json.loads(written)
    except ValueError:
        return name, written
    if (
        isinstance(value, list)
        and value
        and all(type(part) is int and abs(part) < 2**53 for part in value)
    ):
        return name, tuple(value)
    return (name, value) if type(value) is int and abs(value) < 2**53 else (name, written)


@router.post("/{job_id}/cancel", responses=documented(400, 401, 403, 404, 409, 422, 429, 503))
def cancel_job(job_id: JobId, caller: Canceller, service: ServiceDep) -> JobAnswer:
    """Cancels a queued job at once and a running one when its current trials are in;
    what was measured stays."""
    with service.database.write("cancel") as session:
        owned(session, job_id, caller)
        return answer(session, [jobs.request_cancel(session, job_id)])[0]


@router.post(
    "/{job_id}/resume",
    dependencies=[JSON_BODY],
    responses=documented(400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 503),
)
def resume_job(
    job_id: JobId,
    caller: Resumer,
    service: ServiceDep,
    request: Annotated[ResumeRequest | None, Body()] = None,
) -> JobAnswer:
    """Queues a cancelled or failed job again; it goes on from its recorded trials."""
    budget = request or ResumeRequest()
    with service.database.write("resume") as session:
        before = owned(session, job_id, caller)
        job = jobs.resume(session, job_id, trials=budget.trials, seconds=budget.seconds)
        if before.state in jobs.FINISHED and job.owner == caller.key_id:
            check_quota(session, service, caller)
        return answer(session, [job])[0]
