"""Routes of kernels. Kernels are shared: every key may read them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Response

from tuner.api.answer_queries import kernel_answers
from tuner.api.artifacts import DownloadHeaders, deliver_artifact
from tuner.api.auth import Administrator, Reader
from tuner.api.problems import Problem, documented
from tuner.api.schemas import (
    IDENTIFIER,
    CreationSort,
    KernelAnswer,
    Page,
    RollbackAnswer,
    ScheduleAnswer,
    SourceAnswer,
)
from tuner.api.service import ServiceDep
from tuner.db import artifacts, kernels, promotions
from tuner.db.kernels import CANARY, PROMOTED, ROLLED_BACK, SUPERSEDED, TRADEOFF
from tuner.measure.cache import Cache

router = APIRouter(prefix="/v1/kernels", tags=["kernels"])

answer = kernel_answers
KernelId = Annotated[str, Path(pattern=IDENTIFIER, description="the kernel's id")]
KernelState = Literal["promoted", "superseded", "rolled_back", "canary", "tradeoff"]
Alias = Literal["champion", "canary"]
STATES = {
    "promoted": PROMOTED,
    "superseded": SUPERSEDED,
    "rolled_back": ROLLED_BACK,
    "canary": CANARY,
    "tradeoff": TRADEOFF,
}
ALIASES = {"champion": PROMOTED, "canary": CANARY}
# What the store holds for a kernel: the archive of an exported library, or the bare library.
FORMS = {"export": ("application/gzip", "tar.gz"), "library": ("application/octet-stream", "so")}


@router.get("", responses=documented(400, 401, 403, 422, 429, 503))
def list_kernels(
    caller: Reader,
    service: ServiceDep,
    state: Annotated[list[KernelState] | None, Query(description="left out: promoted ones")] = None,
    alias: Annotated[
        Alias | None, Query(description="`champion` is promoted, `canary` may become so")
    ] = None,
    workload: Annotated[
        str | None, Query(pattern=IDENTIFIER, description="key of a workload")
    ] = None,
    target: Annotated[str | None, Query(pattern=IDENTIFIER, description="key of a target")] = None,
    op: Annotated[
        str | None, Query(pattern=IDENTIFIER, description="operator of the catalogue")
    ] = None,
    job: Annotated[
        str | None, Query(pattern=IDENTIFIER, description="the job it came from")
    ] = None,
    cache: Annotated[
        Cache | None, Query(description="what timed calls found in the caches; left out: all")
    ] = None,
    sort: CreationSort = "-created_at",
    cursor: Annotated[
        str | None, Query(max_length=500, description="`next` of the page before")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="items on a page")] = 50,
) -> Page[KernelAnswer]:
    """Kernels, newest first."""
    states = tuple(STATES[name] for name in state or ["promoted"])
    if alias is not None:
        states = (ALIASES[alias],)
    with service.database.read() as session:
        page = kernels.list_page(
            session,
            state=states,
            workload=workload,
            target=target,
            op=op,
            job=job,
            cache=cache,
            oldest_first=sort == "created_at",
            cursor=cursor,
            limit=limit,
        )
        return Page(items=answer(session, page.items), next=page.next)


@router.get("/{kernel_id}", responses=documented(401, 403, 404, 422, 429, 503))
def get_kernel(kernel_id: KernelId, caller: Reader, service: ServiceDep) -> KernelAnswer:
    """One kernel: its numbers with their confidence, its verification, what it was
    raced against."""
    with service.database.read() as session:
        kernel = kernels.get(session, kernel_id)
        loss = service.losses.of_kernel(session, kernel)
        return answer(session, [kernel])[0].model_copy(update={"loss": loss})


@router.get("/{kernel_id}/schedule", responses=documented(401, 403, 404, 422, 429, 503))
def get_schedule(kernel_id: KernelId, caller: Reader, service: ServiceDep) -> ScheduleAnswer:
    """The schedule the kernel was built from: its trace of primitives, its module, versions."""
    with service.database.read() as session:
        document = kernels.schedule(session, kernel_id)
    return ScheduleAnswer(
        kernel=kernel_id,
        schedule={name: value for name, value in document.items() if name != "sources"},
    )


@router.get("/{kernel_id}/source", responses=documented(401, 403, 404, 422, 429, 503))
def get_source(kernel_id: KernelId, caller: Reader, service: ServiceDep) -> SourceAnswer:
    """The code by language (`llvm`, `asm`, `cuda`), as far as it was kept, and
    `schedule`, the trace as readable text."""
    with service.database.read() as session:
        document = kernels.schedule(session, kernel_id)
    kept = document.get("sources")
    sources = (
        {str(name): str(text) for name, text in kept.items()} if isinstance(kept, dict) else {}
    )
    if isinstance(document.get("text"), str):
        sources["schedule"] = document["text"]
    if not sources:
        raise Problem(
            404,
            "no_source",
            f"no generated code was kept for kernel {kernel_id}; tuning it again keeps it",
        )
    return SourceAnswer(kernel=kernel_id, sources=sources)


@router.get(
    "/{kernel_id}/artifact",
    response_class=Response,
    responses={
        200: {
            "content": {
                kind: {"schema": {"type": "string", "format": "binary"}}
                for kind, _ in FORMS.values()
            }
        },
        206: {
            "description": "The part asked for by Range",
            "content": {
                kind: {"schema": {"type": "string", "format": "binary"}}
                for kind, _ in FORMS.values()
            },
        },
        304: {"description": "The client has these bytes"},
        **documented(401, 403, 404, 416, 422, 429, 500, 503),
    },
)
def get_artifact(
    kernel_id: KernelId,
    caller: Reader,
    service: ServiceDep,
    download: Annotated[DownloadHeaders, Depends()],
) -> Response:
    """The compiled kernel as an exported library of one function. Its ETag is the
    SHA-256 of its bytes, checked each time."""
    with service.database.read() as session:
        kernel = kernels.get(session, kernel_id)
        # The exported archive if promotion made one, else the measured library.
        digest = str(kernels.schedule(session, kernel_id).get("export") or kernel.artifact)
        artifact = artifacts.get(session, digest)
    media_type, extension = FORMS.get(artifact.kind, FORMS["library"])
    return deliver_artifact(
        service, artifact, download, filename=f"{kernel_id}.{extension}", media_type=media_type
    )


@router.post("/{kernel_id}/rollback", responses=documented(401, 403, 404, 409, 422, 429, 503))
def rollback_kernel(
    kernel_id: KernelId, caller: Administrator, service: ServiceDep
) -> RollbackAnswer:
    """Withdraws a promoted kernel and promotes its predecessor, in one transaction; or
    withdraws a canary, beside which the champion stays."""
    with service.database.write("rollback") as session:
        before = promotions.rollback(session, kernel_id)
        return RollbackAnswer(
            rolled_back=kernel_id, promoted=None if before is None else answer(session, [before])[0]
        )


@router.post("/{kernel_id}/promote", responses=documented(401, 403, 404, 409, 422, 429, 503))
def promote_kernel(kernel_id: KernelId, caller: Administrator, service: ServiceDep) -> KernelAnswer:
    """Promotes a canary at once in place of the champion, in one transaction."""
    with service.database.write("promote") as session:
        return answer(session, [promotions.promote_canary(session, kernel_id)])[0]
