"""Routes that estimate the times of workloads before they are tuned, and make them surer."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Response

from tuner.api import workloads
from tuner.api.answer_queries import job_answers
from tuner.api.auth import Caller, Reader, Requester, take_token
from tuner.api.content_type import JSON_BODY
from tuner.api.estimate_schemas import EstimatesAnswer, EstimatesRequest, LearningRequest
from tuner.api.learning import learning_plan
from tuner.api.problems import documented
from tuner.api.routes.jobs import IdempotencyKey, accepted, create, digest, once, repeated
from tuner.api.schemas import JobAnswer
from tuner.api.service import Service, ServiceDep
from tuner.api.targets import choose
from tuner.db import targets
from tuner.db.jobs import NewJob
from tuner.errors import WorkloadError
from tuner.target.target import Target
from tuner.workload.workload import Workload

router = APIRouter(prefix="/v1/estimates", tags=["kernels"])

WORKLOADS_PER_TOKEN = 10
EXAMPLES = {
    "operators": {
        "value": {"workloads": [{"op": "matmul", "params": {"M": 384, "N": 512, "K": 512}}]}
    }
}
LEARNING = {"operators": {"value": {**EXAMPLES["operators"]["value"], "seconds": 600}}}


@router.post(
    "", dependencies=[JSON_BODY], responses=documented(400, 401, 403, 408, 413, 415, 422, 429, 503)
)
def estimate_workloads(
    request: Annotated[EstimatesRequest, Body(openapi_examples=EXAMPLES)],
    caller: Reader,
    service: ServiceDep,
) -> EstimatesAnswer:
    """Seconds of each workload with an interval and their source: `measured` (its kernel),
    `neighbour` (a kernel of nearly its extents) or `predicted`. Nothing is compiled."""
    parsed, target = _asked(request, caller, service)
    return service.estimator.estimate(parsed, target, request.threads)


@router.post(
    "/jobs",
    status_code=202,
    dependencies=[JSON_BODY],
    responses=documented(400, 401, 403, 408, 409, 413, 415, 422, 429, 503),
)
def learn_estimates(
    request: Annotated[LearningRequest, Body(openapi_examples=LEARNING)],
    caller: Requester,
    service: ServiceDep,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> JobAnswer:
    """Queues a job that tunes those of the workloads whose measurement makes the weighted
    times of all of them surest, within the seconds. The answer's `Location` is the job."""
    idempotency = once(caller, idempotency_key, digest(request))
    with service.database.read() as session:
        before = repeated(session, idempotency)
        if before is not None:
            return accepted(response, job_answers(session, [before])[0], created=False)
    parsed, target = _asked(request, caller, service)
    plan = learning_plan(
        service.estimator,
        parsed,
        request.weights or [1.0] * len(parsed),
        target,
        request.threads,
        request.seconds,
    )
    with service.database.write("submit") as session:
        if targets.find(session, target.key) is None:
            targets.remember(session, target)
        new = NewJob(
            workloads=tuple(workloads.remember(session, each) for each in plan.workloads),
            target=target.key,
            threads=request.threads,
            trials=request.trials,
            seconds=plan.seconds,
            priority=request.priority,
            owner=caller.key_id,
            settings={"improve": False},
        )
        job, created = create(session, service, caller, new, idempotency)
        answered = job_answers(session, [job])[0]
    return accepted(response, answered, created=created)


def _asked(
    request: EstimatesRequest, caller: Caller, service: Service
) -> tuple[list[Workload], Target]:
    """The workloads of a request, for which the caller's tokens are taken, and its target."""
    take_token(service, caller, (len(request.workloads) - 1) / WORKLOADS_PER_TOKEN)
    with service.database.read() as session:
        target = choose(request.target, targets.list_all(session), service.default_target)
    parsed = []
    for place, written in enumerate(request.workloads):
        try:
            parsed.append(service.parsed.parse(written))
        except WorkloadError as error:
            error.args = (f"workloads.{place}: {error}",)
            raise
    return parsed, target
