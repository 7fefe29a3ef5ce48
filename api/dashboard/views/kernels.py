"""The page that lists kernels, with its filters in the address."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from tuner.api.dashboard import labels
from tuner.api.dashboard.pages import PageRoute, render
from tuner.api.dashboard.sessions import Viewer
from tuner.api.service import ServiceDep
from tuner.db import kernels, races, targets, workloads
from tuner.workload.catalogue import CATALOGUE

router = APIRouter(prefix="/kernels", route_class=PageRoute)

ROWS = 50


@router.get("")
def page(
    request: Request,
    caller: Viewer,
    service: ServiceDep,
    op: Annotated[str, Query(max_length=64)] = "",
    state: Annotated[str, Query(max_length=20)] = "",
    job: Annotated[str, Query(max_length=64)] = "",
    target: Annotated[str, Query(max_length=64)] = "",
    q: Annotated[str, Query(max_length=200)] = "",
    cursor: Annotated[str | None, Query(max_length=500)] = None,
) -> Response:
    with service.database.read() as session:
        states = (state,) if state else (kernels.PROMOTED,)
        listed = kernels.list_page(
            session,
            state=states,
            op=op or None,
            job=job or None,
            target=target or None,
            text=q.strip(),
            cursor=cursor or None,
            limit=ROWS,
        )
        lost = races.regressed(session, [kernel.id for kernel in listed.items])
        names = workloads.get_many(session, [kernel.workload for kernel in listed.items])
        machines = {target.key: target for target in targets.list_all(session)}
        now = session.now()
    context = {
        "kernels": listed.items,
        "regressed": lost,
        "specs": {key: labels.label(stored) for key, stored in names.items()},
        "targets": machines,
        "next_cursor": listed.next,
        "op": op,
        "state": state,
        "job": job,
        "target": target,
        "text": q.strip(),
        "operators": [operator.name for operator in CATALOGUE],
        "states": kernels.STATES,
        "now": now,
    }
    return render(request, "kernels.html", context, caller=caller)
