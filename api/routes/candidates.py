"""Routes of foreign kernels: a source becomes a job, which ends with a verdict.

The operator must have switched them on, and the key needs a scope of its own. The text is
stored as bytes here; workers compile it behind a fence.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Body, Response

from tuner.api import workloads
from tuner.api.auth import Reader, SourceSubmitter
from tuner.api.candidate_schemas import (
    CandidateAnswer,
    CandidateRequest,
    LaunchRequest,
    VerdictAnswer,
)
from tuner.api.content_type import JSON_BODY
from tuner.api.problems import Problem, documented
from tuner.api.routes.jobs import (
    IdempotencyKey,
    JobId,
    answer,
    create,
    digest,
    once,
    repeated,
    seen,
)
from tuner.api.service import ServiceDep
from tuner.api.targets import choose
from tuner.db import artifacts, targets
from tuner.db import workloads as stored_workloads
from tuner.db.engine import Session
from tuner.db.jobs import JUDGE, Job, NewJob
from tuner.db.tasks import LAUNCH, SOURCE, VERDICT
from tuner.errors import UsageError
from tuner.export.header import cuda_signature_of, signature_of
from tuner.export.naming import symbol_of
from tuner.measure.foreign.dimensions import dimensions_of, dimensions_to_document
from tuner.target.capability import is_declared
from tuner.target.target import Target
from tuner.workload.spec import from_document

router = APIRouter(prefix="/v1/candidates", tags=["jobs"])

EXAMPLE = {
    "product": {
        "value": {
            "workload": {"op": "matmul", "params": {"M": 2, "N": 2, "K": 2}},
            "source": "int matmul_m2_n2_k2(const float *a, const float *b, float *c) {\n"
            "  for (int i = 0; i < 2; ++i)\n    for (int j = 0; j < 2; ++j)\n"
            "      c[2 * i + j] = a[2 * i] * b[j] + a[2 * i + 1] * b[2 + j];\n  return 0;\n}\n",
        }
    },
    "on a GPU": {
        "value": {
            "workload": {"op": "elementwise", "params": {"M": 64, "N": 256, "act": "relu"}},
            "language": "cuda",
            "source": 'extern "C" __global__ void elementwise_m64_n256_relu('
            "const float *x, float *y) {\n"
            "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
            "  y[i] = x[i] < 0 ? 0 : x[i];\n}\n",
            "launch": {"grid": [64], "block": [256]},
            "target": "cuda:sm_90",
        }
    },
}


@router.post(
    "",
    status_code=202,
    dependencies=[JSON_BODY],
    responses=documented(400, 401, 403, 408, 409, 413, 415, 422, 429, 503),
)
def submit_candidate(
    request: Annotated[CandidateRequest, Body(openapi_examples=EXAMPLE)],
    caller: SourceSubmitter,
    service: ServiceDep,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> CandidateAnswer:
    """Queues the judgement of a kernel in C or CUDA C++. The answer's `Location` has the
    verdict, once the job has succeeded."""
    if service.options.candidates == "off":
        detail = (
            "this service compiles nobody's sources; its operator can switch that on by the "
            "setting candidates"
        )
        raise Problem(403, "forbidden", detail)
    idempotency = once(caller, idempotency_key, digest(request))
    with service.database.read() as session:
        before = repeated(session, idempotency)
        if before is not None:
            return _accepted(response, _answer(session, before), created=False)
    workload = service.parsed.parse(request.workload)
    if workload.constants:
        raise UsageError("a foreign kernel gets all inputs in each call; leave constants away")
    content = request.source.encode("utf-8", errors="replace")
    source = hashlib.sha256(content).hexdigest()
    with (
        service.artifacts.staged(content) as keep_file,
        service.database.write("submit") as session,
    ):
        target = choose(request.target, targets.list_all(session), service.default_target)
        settings: dict[str, Any] = {SOURCE: source}
        if request.launch is not None:
            settings[LAUNCH] = _launch(request.launch, target)
        elif target.on_device:
            raise Problem(
                422,
                "invalid_request",
                f"the source is c, and {target.name} is a GPU; send cuda for it, or name a CPU as "
                f"the target",
            )
        elif is_declared(target):
            raise UsageError(
                f"a foreign kernel is judged on the service's own CPU, and {target.name} may be a "
                f"device's"
            )
        if targets.find(session, target.key) is None:
            targets.remember(session, target)  # a declared GPU without jobs so far
        artifacts.remember(session, sha256=source, size_bytes=len(content), kind="source")
        new = NewJob(
            workloads=(workloads.remember(session, workload),),
            target=target.key,
            threads=request.threads,
            trials=1,
            priority=request.priority,
            owner=caller.key_id,
            kind=JUDGE,
            settings=settings,
        )
        job, created = create(session, service, caller, new, idempotency)
        answered = _answer(session, job)
        if created:
            keep_file()  # before the commit; what is refused leaves no file
    return _accepted(response, answered, created=created)


@router.get("/{job_id}", responses=documented(401, 403, 404, 422, 429, 503))
def get_candidate(job_id: JobId, caller: Reader, service: ServiceDep) -> CandidateAnswer:
    """A foreign kernel's job, with the verdict once there is one."""
    with service.database.read() as session:
        job = seen(session, job_id, caller)
        if job.kind != JUDGE:
            raise Problem(404, "not_found", f"job {job_id} judges no foreign kernel")
        return _answer(session, job)


def _accepted(response: Response, candidate: CandidateAnswer, *, created: bool) -> CandidateAnswer:
    response.headers["Location"] = f"/v1/candidates/{candidate.job.id}"
    if not created:
        response.headers["Idempotency-Replayed"] = "true"
    return candidate


def _launch(request: LaunchRequest, target: Target) -> dict[str, Any]:
    """The dimensions of a launch as settings have them. Raises Problem for others than a GPU's."""
    if not target.on_device:
        raise Problem(
            422,
            "invalid_request",
            f"the source is cuda, and {target.name} is a CPU; send c for it, or name a GPU as the "
            f"target, such as cuda:sm_90",
        )
    dimensions = dimensions_of(request.grid, request.block, request.shared_bytes)
    fault = dimensions.fault(target)
    if fault is not None:
        raise Problem(422, "invalid_request", f"launch: {fault}")
    return dimensions_to_document(dimensions)


def _answer(session: Session, job: Job) -> CandidateAnswer:
    workload = from_document(stored_workloads.get(session, job.tasks[0].workload).document)
    verdict = job.settings.get(VERDICT)
    is_cuda = LAUNCH in job.settings
    return CandidateAnswer(
        job=answer(session, [job])[0],
        symbol=symbol_of(workload),
        language="cuda" if is_cuda else "c",
        signature=(cuda_signature_of if is_cuda else signature_of)(workload),
        verdict=None if verdict is None else VerdictAnswer.model_validate(verdict),
    )
