"""Routes of searchers outside the service: the space, and configs to be measured.

The trials of a job, and its stream of events, tell what became of them.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query

from tuner.api import answers
from tuner.api.auth import Reader, Submitter
from tuner.api.content_type import JSON_BODY
from tuner.api.problems import Problem, documented
from tuner.api.proposal_schemas import (
    MAX_PROPOSALS,
    KnobAnswer,
    ProposalRequest,
    ProposalsAnswer,
    SketchAnswer,
    SpaceAnswer,
)
from tuner.api.routes.jobs import JobId, owned, seen
from tuner.api.service import ServiceDep
from tuner.db import proposals, targets, workloads
from tuner.db.engine import Session
from tuner.db.jobs import Job
from tuner.db.proposals import Proposed
from tuner.db.values import config_from_json
from tuner.search.strategies import EXTERNAL
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Space
from tuner.workload.spec import from_document

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

Position = Annotated[
    int, Query(ge=0, le=2**31 - 1, description="position of the workload in the job, from 0")
]


@router.get("/{job_id}/space", responses=documented(401, 403, 404, 422, 429, 503))
def get_space(
    job_id: JobId, caller: Reader, service: ServiceDep, workload: Position = 0
) -> SpaceAnswer:
    """The knobs of each sketch and their values: what a config of this job may hold."""
    with service.database.read() as session:
        space = _space(session, seen(session, job_id, caller), workload)
    return SpaceAnswer(
        size=space.size,
        sketches=[
            SketchAnswer(
                name=sketch.name,
                knobs=[
                    KnobAnswer(name=knob.name, values=list(map(answers.knob_value, knob.values)))
                    for knob in sketch.knobs
                ],
            )
            for sketch in space.combinations
        ],
    )


@router.get("/{job_id}/proposals", responses=documented(401, 403, 404, 422, 429, 503))
def get_proposals(
    job_id: JobId,
    caller: Reader,
    service: ServiceDep,
    workload: Position = 0,
    first: Annotated[int, Query(ge=0, le=10_000_000, description="number of the first")] = 0,
) -> ProposalsAnswer:
    """What was proposed until now, so that a searcher that was cut off goes on from there."""
    with service.database.read() as session:
        seen(session, job_id, caller)
        return _answer(proposals.read(session, job_id, workload), first, MAX_PROPOSALS)


@router.post(
    "/{job_id}/proposals",
    dependencies=[JSON_BODY],
    responses=documented(400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 503),
)
def propose_configs(
    job_id: JobId,
    caller: Submitter,
    service: ServiceDep,
    request: Annotated[ProposalRequest, Body()],
) -> ProposalsAnswer:
    """Adds configs to be measured. A batch that is sent again is taken once."""
    with service.database.read() as session:
        job = owned(session, job_id, caller)
        if job.strategy != EXTERNAL:
            raise Problem(
                409,
                "illegal_transition",
                f"job {job_id} searches by {job.strategy}; proposals are for jobs of the "
                f"strategy {EXTERNAL!r}",
            )
        space = _space(session, job, request.workload)
    # As the trials have them: with every knob, those that the sketch does not use at their first.
    configs = [space.config(space.point(config_from_json(config))) for config in request.configs]
    with service.database.write("proposals") as session:
        proposed = proposals.propose(
            session,
            job_id,
            request.workload,
            first=request.first,
            configs=configs,
            close=request.close,
        )
    return _answer(proposed, request.first, len(configs))


def _space(session: Session, job: Job, position: int) -> Space:
    if position >= len(job.tasks):
        raise Problem(404, "not_found", f"job {job.id} has {len(job.tasks)} workloads, from 0")
    stored = workloads.get(session, job.tasks[position].workload)
    target = targets.get(session, job.target)
    return space_of(from_document(stored.document), target, job.threads).space


def _answer(proposed: Proposed, first: int, count: int) -> ProposalsAnswer:
    return ProposalsAnswer(
        total=len(proposed.configs),
        closed=proposed.closed,
        configs=[answers.config(config) for config in proposed.configs[first : first + count]],
    )
