"""Routes that run a kernel on a caller's arrays, in a worker.

The request waits up to 30 s for the result, which can be fetched later otherwise. Arrays
are sent as `.npz` and passed on in the artifact store; nothing in them is unpickled.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from tuner.api.auth import Caller, Reader, Requester
from tuner.api.content_type import require_type
from tuner.api.npz import ArraySpec, check_npz
from tuner.api.problems import Problem, documented
from tuner.api.routes.kernels import KernelId
from tuner.api.schemas import IDENTIFIER, RunAnswer
from tuner.api.service import Service, ServiceDep
from tuner.db import artifacts, kernels, runs, targets, totals, workloads
from tuner.db.runs import FAILED, SUCCEEDED, Run
from tuner.workload.spec import from_document

router = APIRouter(prefix="/v1/kernels", tags=["kernels"])
log = structlog.get_logger("api.runs")

NPZ = "application/x-npz"
FIRST_POLL_S, LONGEST_POLL_S = 0.01, 0.25
BINARY = {NPZ: {"schema": {"type": "string", "format": "binary"}}}
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The outputs by name, as .npz", "content": BINARY},
    202: {"description": "Not finished yet; ask again at `Location`", "model": RunAnswer},
}


def inputs_of(service: Service, kernel_id: str) -> list[ArraySpec]:
    """The kernel's inputs, in the order of its expression."""
    with service.database.read() as session:
        kernel = kernels.get(session, kernel_id)
        target = targets.get(session, kernel.target)
        document = workloads.get(session, kernel.workload).document
    if target.on_device:
        detail = (
            f"kernel {kernel_id} is for {target.name}; a service runs those of CPUs: "
            f"download the artifact, call it there"
        )
        raise Problem(422, "run_failed", detail)
    tensors = from_document(document).expression.inputs
    return [
        ArraySpec(name=tensor.name, dtype=tensor.dtype, shape=tensor.shape) for tensor in tensors
    ]


def submit(service: Service, caller: Caller, kernel_id: str, body: bytes) -> Run:
    check_npz(body, inputs_of(service, kernel_id))
    with service.database.read() as session:
        waiting = totals.waiting_runs(session, caller.key_id)
    if waiting >= service.options.max_waiting_runs:
        detail = f"this key has {waiting} runs waiting, its limit; wait for them"
        raise Problem(429, "quota_exceeded", detail, headers={"Retry-After": "5"})
    digest = service.artifacts.put(body)
    with service.database.write("run-submit") as session:
        artifacts.remember(session, sha256=digest, size_bytes=len(body), kind="input")
        run = runs.submit(session, kernel=kernel_id, input_artifact=digest, owner=caller.key_id)
    log.info("run_accepted", run=run.id, kernel=kernel_id)
    return run


async def settled(service: Service, run: Run) -> Run:
    """The run once it has ended, or as it is after `run_wait_s`."""
    loop = asyncio.get_running_loop()
    deadline, pause_s = loop.time() + service.options.run_wait_s, FIRST_POLL_S

    def read() -> Run:
        with service.database.read() as session:
            return runs.get(session, run.id)

    while (
        run.state not in (SUCCEEDED, FAILED) and loop.time() < deadline and not service.feed.closed
    ):
        await asyncio.sleep(min(pause_s, max(0.0, deadline - loop.time())))
        pause_s = min(LONGEST_POLL_S, pause_s * 1.5)
        run = await run_in_threadpool(read)
    return run


async def result(service: Service, run: Run) -> Response:
    if run.state == FAILED:
        raise Problem(422, "run_failed", run.error or "the kernel did not run")
    if run.state == SUCCEEDED and run.output is not None:
        return Response(await run_in_threadpool(service.artifacts.get, run.output), media_type=NPZ)
    answer = RunAnswer(id=run.id, kernel=run.kernel, state=run.state, created_at=run.created_at)
    headers = {"Location": f"/v1/kernels/{run.kernel}/runs/{run.id}", "Retry-After": "1"}
    return JSONResponse(answer.model_dump(mode="json"), 202, headers)


@router.post(
    "/{kernel_id}/run",
    response_class=Response,
    responses={**ANSWERS, **documented(400, 401, 403, 404, 413, 415, 422, 429, 500, 503)},
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "the inputs by name; bfloat16 as uint16",
            "content": BINARY,
        }
    },
)
async def run_kernel(
    kernel_id: KernelId, caller: Requester, service: ServiceDep, request: Request
) -> Response:
    """Runs the kernel on the arrays sent, in a worker: the outputs as `.npz`, or 202
    and a location past 30 s."""
    require_type(request, NPZ, "application/octet-stream", "application/zip")
    run = await run_in_threadpool(submit, service, caller, kernel_id, await request.body())
    return await result(service, await settled(service, run))


@router.get(
    "/{kernel_id}/runs/{run_id}",
    response_class=Response,
    responses={**ANSWERS, **documented(401, 403, 404, 422, 429, 500, 503)},
)
async def get_run(
    kernel_id: KernelId,
    run_id: Annotated[str, Path(pattern=IDENTIFIER)],
    caller: Reader,
    service: ServiceDep,
) -> Response:
    """The result of a run that took longer, or 202 while it still does."""

    def read() -> Run:
        with service.database.read() as session:
            run = runs.get(session, run_id)
        if run.kernel != kernel_id or not (caller.sees_all or run.owner == caller.key_id):
            raise Problem(404, "not_found", f"no run {run_id!r} is known")
        return run

    return await result(service, await run_in_threadpool(read))
