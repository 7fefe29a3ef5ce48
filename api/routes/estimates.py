"""The route that estimates the times of workloads before they are tuned."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body

from tuner.api.auth import Reader, take_token
from tuner.api.content_type import JSON_BODY
from tuner.api.estimate_schemas import EstimatesAnswer, EstimatesRequest
from tuner.api.problems import documented
from tuner.api.service import ServiceDep
from tuner.api.targets import choose
from tuner.db import targets
from tuner.errors import WorkloadError

router = APIRouter(prefix="/v1/estimates", tags=["kernels"])

WORKLOADS_PER_TOKEN = 10
EXAMPLES = {
    "operators": {
        "value": {"workloads": [{"op": "matmul", "params": {"M": 384, "N": 512, "K": 512}}]}
    }
}


@router.post(
    "", dependencies=[JSON_BODY], responses=documented(400, 401, 403, 413, 415, 422, 429, 503)
)
def estimate_workloads(
    request: Annotated[EstimatesRequest, Body(openapi_examples=EXAMPLES)],
    caller: Reader,
    service: ServiceDep,
) -> EstimatesAnswer:
    """Seconds of each workload with an interval and their source: `measured` (its kernel),
    `neighbour` (a kernel of nearly its extents) or `predicted`. Nothing is compiled."""
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
    return service.estimator.estimate(parsed, target, request.threads)
