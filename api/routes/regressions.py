"""Routes of kernels' races over time, and of what they lost."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from tuner.api import race_answers
from tuner.api.auth import Reader
from tuner.api.problems import documented
from tuner.api.race_schemas import RacesAnswer, RegressionAnswer, RegressionState
from tuner.api.routes.kernels import KernelId
from tuner.api.schemas import IDENTIFIER, Page
from tuner.api.service import ServiceDep
from tuner.db import kernels, races

router = APIRouter(prefix="/v1", tags=["kernels"])


@router.get("/kernels/{kernel_id}/races", responses=documented(401, 403, 404, 422, 429, 503))
def get_races(kernel_id: KernelId, caller: Reader, service: ServiceDep) -> RacesAnswer:
    """The kernel's races since it was promoted, against the libraries of each day."""
    with service.database.read() as session:
        kernels.get(session, kernel_id)
        series = races.series(session, kernel_id)
    return RacesAnswer(kernel=kernel_id, items=[race_answers.race(each) for each in series])


@router.get("/regressions", responses=documented(400, 401, 403, 422, 429, 503))
def list_regressions(
    caller: Reader,
    service: ServiceDep,
    state: Annotated[
        list[RegressionState] | None, Query(description="left out: those that are raised")
    ] = None,
    kernel: Annotated[str | None, Query(pattern=IDENTIFIER, description="id of a kernel")] = None,
    cursor: Annotated[
        str | None, Query(max_length=500, description="`next` of the page before")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="items on a page")] = 50,
) -> Page[RegressionAnswer]:
    """What promoted kernels lost, newest first."""
    with service.database.read() as session:
        page = races.list_regressions(
            session, state=tuple(state or ["raised"]), kernel=kernel, cursor=cursor, limit=limit
        )
    return Page(items=[race_answers.regression(each) for each in page.items], next=page.next)
