"""Routes of models: an ONNX file becomes a job, whose workloads a worker extracts.

The file goes to the disk as it comes, and is never read here.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from tuner.api import answers
from tuner.api.artifacts import DownloadHeaders, deliver_artifact
from tuner.api.auth import Caller, Reader, Requester
from tuner.api.content_type import require_type
from tuner.api.model_schemas import ModelAnswer
from tuner.api.problems import Problem, documented
from tuner.api.routes.jobs import (
    IdempotencyKey,
    JobId,
    accepted,
    answer,
    create,
    once,
    repeated,
    seen,
)
from tuner.api.schemas import JobAnswer, TargetName
from tuner.api.service import Service, ServiceDep
from tuner.api.targets import choose
from tuner.db import artifacts, targets
from tuner.db.engine import Session
from tuner.db.jobs import MODEL as MODEL_JOB
from tuner.db.jobs import Job, NewJob
from tuner.db.tasks import DESCRIPTION, LIBRARY, MAX_ERROR, MEASUREMENT, MODEL, NUMERICS, SHAPES
from tuner.export.artifacts import Incoming
from tuner.models.description import Description, Measurement, from_json, measurement_from
from tuner.models.files.input_shapes import parse_shapes
from tuner.search.strategies import DEFAULT_STRATEGY, StrategyName
from tuner.workload.workload import ModelNumerics

router = APIRouter(prefix="/v1/models", tags=["jobs"])

ONNX = ("application/octet-stream", "application/onnx", "application/x-onnx")
GRAPH = "application/x-tuner-graph"  # a graph of expressions, as `tuner.torch` sends it
ARCHIVE = {"application/gzip": {"schema": {"type": "string", "format": "binary"}}}
BINARY = {name: {"schema": {"type": "string", "format": "binary"}} for name in (ONNX[0], GRAPH)}


@router.post(
    "",
    status_code=202,
    responses=documented(400, 401, 403, 408, 409, 413, 415, 422, 429, 503),
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "an ONNX file or a graph",
            "content": BINARY,
        }
    },
)
async def submit_model(
    request: Request,
    caller: Requester,
    service: ServiceDep,
    response: Response,
    target: Annotated[TargetName | None, Query()] = None,
    threads: Annotated[int, Query(ge=1, le=1024)] = 1,
    trials: Annotated[int, Query(ge=1, le=1_000_000, description="budget per kernel")] = 256,
    seconds: Annotated[float | None, Query(ge=1.0, le=2_592_000.0, allow_inf_nan=False)] = None,
    strategy: StrategyName = DEFAULT_STRATEGY,
    seed: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    priority: Annotated[int, Query(ge=-100, le=100)] = 0,
    shapes: Annotated[
        str,
        Query(
            max_length=4000,
            description="extents that the inputs name and whole shapes of inputs, such as "
            "batch=1,x=1x3x48x192",
        ),
    ] = "",
    numerics: Annotated[
        ModelNumerics | None, Query(description="whether kernels may have fast numerics")
    ] = None,
    max_error: Annotated[
        float | None,
        Query(
            gt=0,
            lt=1,
            allow_inf_nan=False,
            description="greatest error of an output, relative to its greatest value; it lets "
            "kernels have fast numerics unless these are strict",
        ),
    ] = None,
    idempotency_key: IdempotencyKey = None,
) -> JobAnswer:
    """Queues the tuning of a model's kernels. Which they are stands in the job once a
    worker has read the file. Of a graph no library is made: who sent it makes it of the
    kernels' configs."""
    require_type(request, *ONNX, GRAPH)
    if not service.options.models:
        detail = (
            "this service takes no models: its workers lack the extra tuner[models]; send "
            "workloads to /v1/jobs"
        )
        raise Problem(422, "models_unavailable", detail)
    with service.artifacts.receiving() as file:
        async for part in request.stream():
            await run_in_threadpool(file.write, part)
        if not file.size_bytes:
            detail = "the body is empty; send the bytes of an .onnx file"
            raise Problem(422, "invalid_model", detail)
        new = NewJob(
            workloads=(),
            target=target or "",
            threads=threads,
            trials=trials,
            seconds=seconds,
            strategy=strategy,
            seed=seed,
            priority=priority,
            owner=caller.key_id,
            kind=MODEL_JOB,
            settings={SHAPES: parse_shapes(shapes), NUMERICS: numerics, MAX_ERROR: max_error},
        )
        job, created = await run_in_threadpool(store, service, caller, new, file, idempotency_key)
    return accepted(response, job, created=created)


@router.get("/{job_id}", responses=documented(401, 403, 404, 422, 429, 500, 503))
def get_model(job_id: JobId, caller: Reader, service: ServiceDep) -> ModelAnswer:
    """What a model takes and gives, its kernels in the order of their calls, its memory."""
    with service.database.read() as session:
        job = of_model(session, job_id, caller)
    return answers.model(job, description_of(service, job), measurement_of(job))


@router.get(
    "/{job_id}/library",
    response_class=Response,
    responses={
        200: {"content": ARCHIVE},
        206: {"description": "The part asked for by Range", "content": ARCHIVE},
        304: {"description": "The client has these bytes"},
        **documented(401, 403, 404, 416, 422, 429, 500, 503),
    },
)
def get_library(
    job_id: JobId,
    caller: Reader,
    service: ServiceDep,
    download: Annotated[DownloadHeaders, Depends()],
) -> Response:
    """The whole model as an exported library of the one function `model_run`, made when
    the model's job succeeds. Its ETag is the SHA-256 of its bytes, checked each time."""
    with service.database.read() as session:
        artifact = artifacts.get(session, with_library(session, job_id, caller)[1])
    return deliver_artifact(
        service, artifact, download, filename=f"{job_id}.tar.gz", media_type="application/gzip"
    )


def of_model(session: Session, job_id: str, caller: Caller) -> Job:
    """The model's job, if the caller may see it. Raises Problem 404 otherwise."""
    job = seen(session, job_id, caller)
    if job.kind != MODEL_JOB:
        raise Problem(404, "not_found", f"job {job_id} is not of a model but of workloads")
    return job


def with_library(session: Session, job_id: str, caller: Caller) -> tuple[Job, str]:
    """The model's job and the digest of its library's archive.

    Raises Problem 404 for a job that has none, or that the caller may not see.
    """
    job = seen(session, job_id, caller)
    digest = job.settings.get(LIBRARY)
    if job.kind != MODEL_JOB or not isinstance(digest, str):
        detail = (
            f"job {job_id} is {job.state} and has no model's library; it is made at "
            f"the end of a job of POST /v1/models{f': {job.error}' if job.error else ''}"
        )
        raise Problem(404, "not_found", detail)
    return job, digest


def description_of(service: Service, job: Job) -> Description:
    """What a worker wrote down when it read the model. Raises Problem 404 before that."""
    digest = job.settings.get(DESCRIPTION)
    if not isinstance(digest, str):
        why = job.error or (
            "it was read by an older version; submit the file again, its kernels are kept"
            if job.tasks
            else "no worker has read it yet"
        )
        raise Problem(404, "not_found", f"job {job.id} has no description of its model: {why}")
    return from_json(service.artifacts.get(digest))


def measurement_of(job: Job) -> Measurement | None:
    """The figures of the model's library; None before there is one."""
    document = job.settings.get(MEASUREMENT)
    return None if document is None else measurement_from(document)


def store(
    service: Service, caller: Caller, new: NewJob, file: Incoming, idempotency_key: str | None
) -> tuple[JobAnswer, bool]:
    """Stores the file and queues its job; `new.target` is the target's name as given."""
    model = file.digest
    request_digest = hashlib.sha256(repr((model, new)).encode()).hexdigest()
    idempotency = once(caller, idempotency_key, request_digest)
    with service.database.read() as session:
        before = repeated(session, idempotency)
        if before is not None:
            return answer(session, [before])[0], False
    keep_file = file.flushed()  # the transaction, for which all others wait, has only to name it
    with service.database.write("submit") as session:
        chosen = choose(new.target or None, targets.list_all(session), service.default_target)
        artifacts.remember(session, sha256=model, size_bytes=file.size_bytes, kind="model")
        queued = replace(new, target=chosen.key, settings={**new.settings, MODEL: model})
        job, created = create(session, service, caller, queued, idempotency)
        if created:
            keep_file()  # before the commit; what is refused leaves no file
        return answer(session, [job])[0], created
