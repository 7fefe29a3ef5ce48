"""Routes that run a model's library on a caller's arrays, in a worker, as kernels are run."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from tuner.api.auth import Reader, Requester
from tuner.api.content_type import require_type
from tuner.api.model_schemas import ModelRunAnswer
from tuner.api.problems import documented
from tuner.api.routes.jobs import JobId
from tuner.api.routes.models import description_of, with_library
from tuner.api.routes.runs import (
    INPUTS,
    NPZ_TYPES,
    RunId,
    answers_of,
    own_run,
    result,
    settled,
    submit,
)
from tuner.api.service import ServiceDep
from tuner.db import targets
from tuner.db.runs import Run, Runnable

router = APIRouter(prefix="/v1/models", tags=["jobs"])

ANSWERS = answers_of(ModelRunAnswer)


@router.post(
    "/{job_id}/run",
    response_class=Response,
    responses={**ANSWERS, **documented(400, 401, 403, 404, 408, 413, 415, 422, 429, 500, 503)},
    openapi_extra=INPUTS,
)
async def run_model(
    job_id: JobId, caller: Requester, service: ServiceDep, request: Request
) -> Response:
    """Runs the model's library on the arrays sent, in a worker: the outputs as `.npz`
    under the file's names, or 202 and a location past 30 s."""
    require_type(request, *NPZ_TYPES)
    body = await request.body()

    def queued() -> Run:
        with service.database.read() as session:
            job, _ = with_library(session, job_id, caller)
            target = targets.get(session, job.target)
        of = Runnable(kind="model", id=job_id)
        return submit(service, caller, of, target, description_of(service, job).inputs, body)

    return await result(service, await settled(service, await run_in_threadpool(queued)))


@router.get(
    "/{job_id}/runs/{run_id}",
    response_class=Response,
    responses={**ANSWERS, **documented(401, 403, 404, 422, 429, 500, 503)},
)
async def get_model_run(
    job_id: JobId, run_id: RunId, caller: Reader, service: ServiceDep
) -> Response:
    """The result of a run that took longer, or 202 while it still does."""
    of = Runnable(kind="model", id=job_id)
    return await result(service, await run_in_threadpool(own_run, service, caller, of, run_id))
