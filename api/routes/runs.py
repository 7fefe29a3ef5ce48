"""Routes that run a kernel on a caller's arrays, in a worker; what runs of models share.

The request waits up to 30 s for the result, which can be fetched later otherwise. Arrays
are sent as `.npz` and passed on in the artifact store; nothing in them is unpickled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from tuner.api.auth import Caller, Reader, Requester
from tuner.api.content_type import require_type
from tuner.api.model_schemas import ModelRunAnswer
from tuner.api.npz import ArraySpec, check_npz
from tuner.api.problems import Problem, documented
from tuner.api.routes.kernels import KernelId
from tuner.api.schemas import IDENTIFIER, RunAnswer
from tuner.api.service import Service, ServiceDep
from tuner.db import artifacts, kernels, keys, runners, runs, targets, totals, workloads
from tuner.db.engine import Session
from tuner.db.runs import FAILED, SUCCEEDED, Run, Runnable
from tuner.target.target import Target
from tuner.workload.expression import Tensor
from tuner.workload.spec import from_document

router = APIRouter(prefix="/v1/kernels", tags=["kernels"])
log = structlog.get_logger("api.runs")

NPZ = "application/x-npz"
NPZ_TYPES = (NPZ, "application/octet-stream", "application/zip")
FIRST_POLL_S, LONGEST_POLL_S = 0.01, 0.25
BINARY = {NPZ: {"schema": {"type": "string", "format": "binary"}}}
INPUTS = {
    "requestBody": {
        "required": True,
        "description": "the inputs by name; bfloat16 as uint16",
        "content": BINARY,
    }
}
RunId = Annotated[str, Path(pattern=IDENTIFIER)]


def answers_of(pending: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a run in OpenAPI; `pending` is the answer while it goes on."""
    return {
        200: {"description": "The outputs by name, as .npz", "content": BINARY},
        202: {"description": "Not finished yet; ask again at `Location`", "model": pending},
    }


ANSWERS = answers_of(RunAnswer)


def inputs_of(service: Service, kernel_id: str) -> tuple[Target, Sequence[Tensor]]:
    """The kernel's target, and its inputs in the order of its expression."""
    with service.database.read() as session:
        kernel = kernels.get(session, kernel_id)
        target = targets.get(session, kernel.target)
        document = workloads.get(session, kernel.workload).document
    return target, from_document(document).expression.inputs


def submit(
    service: Service,
    caller: Caller,
    of: Runnable,
    target: Target,
    inputs: Sequence[Tensor],
    body: bytes,
) -> Run:
    """Queues a run on the `.npz` in `body`. Raises ArrayError, and Problem for another refusal.

    The target is looked at first: right arrays would not help where nothing can run.
    """
    with service.database.read() as session:
        check_target(session, service, of, target)
        check_waiting(session, service, caller, 1)  # before anything is stored
    specs = [ArraySpec(name=each.name, dtype=each.dtype, shape=each.shape) for each in inputs]
    check_npz(body, specs)
    digest = service.artifacts.put(body)
    with service.database.write("run-submit") as session:
        artifacts.remember(session, sha256=digest, size_bytes=len(body), kind="input")
        run = runs.submit(session, of=of, input_artifact=digest, owner=caller.key_id)
        if caller.key_id is not None:
            # Otherwise concurrent requests would not count each other's runs.
            keys.hold(session, caller.key_id)
        check_waiting(session, service, caller, 0)
    log.info("run_accepted", run=run.id, **{of.kind: of.id})
    return run


def check_waiting(session: Session, service: Service, caller: Caller, more: int) -> None:
    """Raises Problem where the caller has too many runs, with so many `more`."""
    most = service.options.max_waiting_runs
    if totals.waiting_runs(session, caller.key_id) + more > most:
        detail = f"this key has {most} runs waiting, its limit; wait for them"
        raise Problem(429, "quota_exceeded", detail, headers={"Retry-After": "5"})


def check_target(session: Session, service: Service, of: Runnable, target: Target) -> None:
    """Raises Problem where no machine of the service has the target."""
    if target.on_device:
        check_gpu(session, of, target)
        return
    if target.key != service.default_target and not runners.has_runner(session, target.key):
        detail = (
            f"{of.kind} {of.id} is for {target.name}, and no machine with this CPU is here: "
            f"download the artifact and call it there, or tune it again"
        )
        raise Problem(422, "run_failed", detail)


def check_gpu(session: Session, of: Runnable, target: Target) -> None:
    """Raises Problem for a model, and where no service has such a GPU."""
    if of.kind == "model":
        reason = "a service runs models of CPUs and kernels of both"
    elif not runners.answers_runs(session, target):
        reason = "and no service with such a GPU is running here"
    else:
        return
    detail = (
        f"{of.kind} {of.id} is for {target.name}; {reason}: download the artifact, call it there"
    )
    raise Problem(422, "run_failed", detail)


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
        raise Problem(422, "run_failed", run.error or f"the {run.of.kind} did not run")
    if run.state == SUCCEEDED and run.output is not None:
        return Response(await run_in_threadpool(service.artifacts.get, run.output), media_type=NPZ)
    same: dict[str, Any] = {"id": run.id, "state": run.state, "created_at": run.created_at}
    answer = (
        RunAnswer(kernel=run.of.id, **same)
        if run.of.kind == "kernel"
        else ModelRunAnswer(job=run.of.id, **same)
    )
    where = f"/v1/{run.of.kind}s/{run.of.id}/runs/{run.id}"
    headers = {"Location": where, "Retry-After": "1"}
    return JSONResponse(answer.model_dump(mode="json"), 202, headers)


def own_run(service: Service, caller: Caller, of: Runnable, run_id: str) -> Run:
    """The caller's run, or anybody's for an administrator; a 404 for others."""
    with service.database.read() as session:
        run = runs.get(session, run_id)
    if run.of != of or not (caller.sees_all or run.owner == caller.key_id):
        raise Problem(404, "not_found", f"no run {run_id!r} is known")
    return run


@router.post(
    "/{kernel_id}/run",
    response_class=Response,
    responses={**ANSWERS, **documented(400, 401, 403, 404, 408, 413, 415, 422, 429, 500, 503)},
    openapi_extra=INPUTS,
)
async def run_kernel(
    kernel_id: KernelId, caller: Requester, service: ServiceDep, request: Request
) -> Response:
    """Runs the kernel on the arrays sent, in a worker: the outputs as `.npz`, or 202
    and a location past 30 s."""
    require_type(request, *NPZ_TYPES)
    body = await request.body()

    def queued() -> Run:
        of = Runnable(kind="kernel", id=kernel_id)
        return submit(service, caller, of, *inputs_of(service, kernel_id), body)

    return await result(service, await settled(service, await run_in_threadpool(queued)))


@router.get(
    "/{kernel_id}/runs/{run_id}",
    response_class=Response,
    responses={**ANSWERS, **documented(401, 403, 404, 422, 429, 500, 503)},
)
async def get_run(
    kernel_id: KernelId,
    run_id: RunId,
    caller: Reader,
    service: ServiceDep,
) -> Response:
    """The result of a run that took longer, or 202 while it still does."""
    of = Runnable(kind="kernel", id=kernel_id)
    return await result(service, await run_in_threadpool(own_run, service, caller, of, run_id))
