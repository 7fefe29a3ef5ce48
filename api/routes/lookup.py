"""The route that looks up the kernel for a workload.

Nothing is compiled within the request: a missing kernel is prepared by a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Body, Response
from starlette.concurrency import run_in_threadpool

from tuner.api import answers, workloads
from tuner.api.auth import Caller, Reader, take_work
from tuner.api.content_type import JSON_BODY
from tuner.api.lookup_cache import CachedLookup
from tuner.api.lookup_schemas import LookupAnswer, LookupRequest
from tuner.api.nearest import nearest
from tuner.api.origins import source_of
from tuner.api.problems import documented
from tuner.api.routes.kernels import answer
from tuner.api.schemas import KernelAnswer
from tuner.api.service import Service, ServiceDep
from tuner.api.targets import choose
from tuner.db import jobs, kernels, targets, tradeoffs
from tuner.db.engine import Session
from tuner.db.jobs import Idempotency, NewJob
from tuner.db.kernels import Kernel
from tuner.db.served import Served
from tuner.measure.cache import WARM, Cache, check_cache
from tuner.measure.objective import FASTEST, Goal, goal_of
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
    responses=documented(400, 401, 403, 408, 413, 415, 422, 429, 503),
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
    workload, goal = service.parsed.parse(request.workload), goal_of(request.objective)
    with service.database.read() as session:
        stored_targets = targets.list_all(session)
        target = choose(request.target, stored_targets, service.default_target)
        check_cache(request.cache, target)
        best = best_by_goal(session, request, workload, target, goal)
        if best:
            return encode(exact(session, service, best, workload, target, is_front=goal.is_front))
        threads = threads_of(session, request, workload, target, goal)
        promoted = kernels.find_promoted(
            session, workload.key, target.key, threads, cache=request.cache
        )
        if promoted is not None:
            body = encode(exact(session, service, [promoted], workload, target, is_front=False))
            if any_threads(request, goal):  # another count may become the fastest
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
                    cache=request.cache,
                    holds_for=holds_for,
                ),
            )
            return body
        neighbour = find_neighbour(session, workload, target, threads, request.cache)
        loss = (
            service.losses.after(session, target.key, threads, candidates=1)
            if neighbour is None and request.cache == WARM
            else None
        )
    job = (
        prepare(service, caller, workload, target, threads, request.cache, neighbour)
        if request.prepare
        else None
    )
    return encode(
        LookupAnswer(
            source="default" if neighbour is None else "neighbour",
            kernel=neighbour,
            job=job,
            loss=loss,
        )
    )


def exact(
    session: Session,
    service: Service,
    best: Sequence[Kernel],
    workload: Workload,
    target: Target,
    *,
    is_front: bool,
) -> LookupAnswer:
    """The answer with kernels of exactly this workload, the best first.

    Workload and target are loaded already: the common case needs no query for them.
    """
    named = {workload.key: answers.parsed_workload(workload)}
    front = [answers.kernel(each, named, {target.key: target}) for each in best]
    return LookupAnswer(
        source=source_of(session, best[0]),
        kernel=front[0],
        front=front if is_front else None,
        job=None,
        loss=service.losses.of_kernel(session, best[0]),
    )


def best_by_goal(
    session: Session, request: LookupRequest, workload: Workload, target: Target, goal: Goal
) -> list[Kernel]:
    """What an objective beside time chooses; empty for time, and where there is no kernel.

    Raises NotMeasured.
    """
    if goal == FASTEST:
        return []
    threads = None if any_threads(request, goal) else int(request.threads or 1)
    items = tradeoffs.choices(session, workload.key, target.key, threads, cache=request.cache)
    if not items:
        return []
    return tradeoffs.best_by(items, goal, request.within, what=workload.spec)


def any_threads(request: LookupRequest, goal: Goal) -> bool:
    """Whether the kernel may have whatever thread count is best."""
    return request.threads == "auto" or (request.threads is None and goal.any_threads)


def threads_of(
    session: Session, request: LookupRequest, workload: Workload, target: Target, goal: Goal
) -> int:
    """The thread count asked for; of any that of the fastest kernel, 1 without one."""
    if not any_threads(request, goal):
        return int(request.threads or 1)
    key = (workload.key, target.key)
    return kernels.fastest_threads(session, *key, cache=request.cache) or 1


def encode(answer: LookupAnswer) -> bytes:
    return answer.model_dump_json().encode()


def find_neighbour(
    session: Session, workload: Workload, target: Target, threads: int, cache: Cache
) -> KernelAnswer | None:
    if workload.op is None:
        return None
    neighbours = {
        kernel.id: kernel
        for kernel in kernels.neighbours(session, workload.op, target.key, threads, cache=cache)
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
    cache: Cache,
    neighbour: KernelAnswer | None,
) -> str | None:
    """Queues the job that prepares a kernel, once for equal lookups; returns its id.

    None for a key that may only read, and while too many such jobs wait.
    """
    if not caller.may("submit"):
        return None
    take_work(service, caller)
    try:
        return queue_prepare(service, workload, target, threads, cache, neighbour)
    except QueueFull:
        return None


def queue_prepare(
    service: Service,
    workload: Workload,
    target: Target,
    threads: int,
    cache: Cache,
    neighbour: KernelAnswer | None,
) -> str:
    key = f"{workload.key}:{target.key}:{threads}:{cache}"
    with service.database.write("prepare") as session:
        if targets.find(session, target.key) is None:
            targets.remember(session, target)  # a declared GPU without jobs so far
        new = NewJob(
            workloads=(workloads.remember(session, workload),),
            target=target.key,
            threads=threads,
            cache=cache,
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
