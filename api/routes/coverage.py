"""The route that says how far a job of recorded calls has come."""

from __future__ import annotations

from fastapi import APIRouter

from tuner.api.auth import Caller, Reader
from tuner.api.coverage import Coverage, Covered, coverage, of_job
from tuner.api.coverage_schemas import CoverageAnswer, CoveredCallAnswer
from tuner.api.problems import documented
from tuner.api.routes.jobs import JobId, seen
from tuner.api.service import Service, ServiceDep
from tuner.db import targets
from tuner.db.jobs import Job

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.get("/{job_id}/coverage", responses=documented(401, 403, 404, 422, 429, 503))
def get_coverage(job_id: JobId, caller: Reader, service: ServiceDep) -> CoverageAnswer:
    """The recorded calls that the job was made of: which have a tuned kernel by now, which fall
    back to the library and why, and what kernels gain. 404 for any other job."""
    _, covered = covered_calls(job_id, caller, service)
    return CoverageAnswer(
        items=[_answer(each) for each in covered.calls],
        next=None,
        total_s=covered.total_s,
        tuned_s=covered.seconds("tuned"),
        untuned_s=covered.seconds("untuned"),
        gain_s=covered.gain_s,
        run_gain_s=covered.run_gain_s,
        unestimated=covered.unestimated,
    )


def covered_calls(job_id: str, caller: Caller, service: Service) -> tuple[Job, Coverage]:
    """The job if the caller may see it, and its calls beside the kernels of today."""
    with service.database.read() as session:
        job = seen(session, job_id, caller)
        calls, parts, total_s = of_job(session, job)
        target = targets.get(session, job.target)
    return job, coverage(
        service.database, service.estimator, calls, parts, total_s, target, job.threads
    )


def _answer(each: Covered) -> CoveredCallAnswer:
    return CoveredCallAnswer(
        library=each.call.library,
        operator=each.call.operator,
        arguments=[dict(argument) for argument in each.call.arguments],
        count=each.call.count,
        total_s=each.call.total_s,
        state=each.state,
        reason=each.reason,
        kernels_s=each.kernels_s,
        measured=each.is_measured,
        gain_s=each.gain_s,
        answered=each.is_answered,
        run_gain_s=each.run_gain_s,
    )
