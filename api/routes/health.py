"""Routes of liveness, readiness and metrics."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from tuner.api.auth import Reader
from tuner.api.problems import documented
from tuner.api.schemas import HealthAnswer
from tuner.api.service import ServiceDep
from tuner.db import totals
from tuner.version import __version__ as VERSION

router = APIRouter(prefix="/v1", tags=["operation"])


@router.get("/health/live")
async def live() -> HealthAnswer:
    """The process answers. Asks nothing else, so that a slow database does not get it restarted."""
    return HealthAnswer(status="ok", version=VERSION)


@router.get("/health/ready", responses=documented(503))
def ready(service: ServiceDep) -> HealthAnswer:
    """The database answers too."""
    service.database.ping()
    return HealthAnswer(status="ok", version=VERSION)


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        **documented(401, 403, 429, 503),
    },
)
def metrics(caller: Reader, service: ServiceDep) -> Response:
    """Counts and times of this process's requests, and the fleet's jobs, trials,
    kernels and workers."""
    with service.database.read() as session:
        service.metrics.fleet(totals.read(session))
    service.metrics.accuracy(service.estimator.accuracies())
    return Response(service.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
