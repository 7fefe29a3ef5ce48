"""The route that looks up the kernel for a workload.

Nothing is compiled within the request: a missing kernel is prepared by a job.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Response
from starlette.concurrency import run_in_threadpool

from tuner.api import answers, workloads
from tuner.api.auth import Caller, Reader, take_work
from tuner.api.content_type import JSON_BODY
from tuner.api.lookup_cache import CachedLookup
from tuner.api.nearest import nearest
from tuner.api.problems import documented
from tuner.api.routes.kernels import answer
from tuner.api.schemas import KernelAnswer, LookupAnswer, LookupRequest
from tuner.api.service import Service, ServiceDep
from tuner.api.targets import choose
from tuner.db import jobs, kernels, targets
from tuner.db.engine import Session
from tuner.db.jobs import Idempotency, NewJob
from tuner.db.kernels import Kernel
from tuner.db.served import Served
from tuner.target.target import Target
from tuner.workload.workload import Workload

router = APIRouter(prefix="/v1/lookup", tags=["kernels"])

PREPARED_FOR = timedelta(minutes=10)  # repeated lookups within this time share one job
EXAMPLES = {
    "operator": {"value": {"workload": {"op": "matmul", "params": {"M": 512, "N": 512, "K": 512}}}}
}


class QueueFull(Exception):
    """Rolls back the job that exceeds the limit of preparing jobs."""


@router.post(
    "",
    dependencies=[JSON_BODY],
    response_model=LookupAnswer,
    responses=documented(400, 401, 403, 413, 415, 422, 429, 503),
)
async def lookup_kernel(
    request: Annotated[LookupRequest, Body(openapi_examples=EXAMPLES)],
    caller: Reader,
    service: ServiceDep,
) -> Response:
    """The kernel of exactly this workload (`exact`); else the nearest kernel of its
    operator (`neighbour`) or none (`default`), and the job that replays the neighbour's
    schedule, or builds the estimate's best and the default, and verifies it; with how
    much slower than the best known it may be."""

    def find() -> bytes:
        text = request.model_dump_json()
        return service.lookups.find(service.database, text) or look_up(
            request, text, caller, service
        )

    # Query and encoding share one switch to another thread: this is the busiest route.
    return Response(await run_in_threadpool(find), media_type="application/json")


def look_up(request: LookupRequest, text: str, caller: Caller, service: Service) -> bytes:
    """The encoded answer to a lookup; `text` is its key in the cache."""
    workload = service.parsed.parse(request.workload)
    with service.database.read() as session:
        stored_targets = targets.list_all(session)
        target = choose(request.target, stored_targets, service.default_target)
        threads = threads_of(session, request, workload, target)
        promoted = kernels.find_promoted(session, workload.key, target.key, threads)
        if promoted is not None:
            # Workload and target are loaded already: the common case needs no other query.
            kernel = answers.kernel(
                promoted, {workload.key: answers.parsed_workload(workload)}, {target.key: target}
            )
            answer = LookupAnswer(
                source=source_of(session, promoted),
                kernel=kernel,
                job=None,
                loss=service.losses.of_kernel(session, promoted),
            )
            body = encode(answer)
            if request.threads != threads:  # auto: another count may become the fastest
                return body
            holds_for = Served(
                kernel=promoted.id,
                stale=promoted.stale,
                job=promoted.job,
                targets=len(stored_targets),
            )
            service.lookups.keep(
                text,
                CachedLookup(
                    body=body,
                    workload=workload.key,
                    target=target.key,
                    threads=threads,
                    holds_for=holds_for,
                ),
            )
            return body
        neighbour = find_neighbour(session, workload, target, threads)
        loss = (
            service.losses.after(session, target.key, threads, candidates=1)
            if neighbour is None
            else None
        )
    job = (
        prepare(service, caller, workload, target, threads, neighbour) if request.prepare else None
    )
    return encode(
        LookupAnswer(
            source="default" if neighbour is None else "neighbour",
            kernel=neighbour,
            job=job,
            loss=loss,
        )
    )


def threads_of(session: Session, request: LookupRequest, workload: Workload, target: Target) -> int:
    """The thread count asked for; of `auto` that of the fastest kernel, 1 without any."""
    if isinstance(request.threads, int):
        return request.threads
    return kernels.fastest_threads(session, workload.key, target.key) or 1


def encode(answer: LookupAnswer) -> bytes:
    return answer.model_dump_json().encode()


def source_of(session: Session, kernel: Kernel) -> Literal["exact", "neighbour", "default"]:
    """The source of a kernel's schedule: a search, or a job that prepared it for a lookup."""
    if kernel.job is None or jobs.kind_of(session, kernel.job) != jobs.PREPARE:
        return "exact"
    estimated = not jobs.get(session, kernel.job).settings
    return "neighbour" if kernel.config and not estimated else "default"


def find_neighbour(
    session: Session, workload: Workload, target: Target, threads: int
) -> KernelAnswer | None:
    if workload.op is None:
        return None
    neighbours = {
        kernel.id: kernel
        for kernel in kernels.neighbours(session, workload.op, target.key, threads)
    }
    stored = workloads.stored(session, [kernel.workload for kernel in neighbours.values()])
    same = [
        kernel
        for kernel in neighbours.values()
        if stored[kernel.workload].numerics == workload.numerics
    ]
    best = nearest(
        workload.params,
        ((kernel.id, stored[kernel.workload].document.get("params") or {}) for kernel in same),
    )
    return None if best is None else answer(session, [neighbours[best]])[0]


def prepare(
    service: Service,
    caller: Caller,
    workload: Workload,
    target: Target,
    threads: int,
    neighbour: KernelAnswer | None,
) -> str | None:
    """Queues the job that prepares a kernel, once for equal lookups; returns its id.

    None for a key that may only read, and while too many such jobs wait.
    """
    if not caller.may("submit"):
        return None
    take_work(service, caller)
    try:
        return queue_prepare(service, workload, target, threads, neighbour)
    except QueueFull:
        return None


def queue_prepare(
    service: Service,
    workload: Workload,
    target: Target,
    threads: int,
    neighbour: KernelAnswer | None,
) -> str:
    key = f"{workload.key}:{target.key}:{threads}"
    with service.database.write("prepare") as session:
        if targets.find(session, target.key) is None:
            targets.remember(session, target)  # a declared GPU without jobs so far
        new = NewJob(
            workloads=(workloads.remember(session, workload),),
            target=target.key,
            threads=threads,
            trials=1,
            owner=None,
            kind=jobs.PREPARE,
            settings={} if neighbour is None else {jobs.NEIGHBOUR: neighbour.id},
        )
        # The owner is no API key's id, so that it cannot clash with a client's Idempotency-Key.
        once = Idempotency(key=key, digest="", owner="lookup", lifetime=PREPARED_FOR)
        job, created = jobs.create(session, new, idempotency=once)
        if created and jobs.count(session, kind=jobs.PREPARE) > service.options.max_prepare_jobs:
            raise QueueFull
        return job.id
