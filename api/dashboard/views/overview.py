"""The first page: jobs, the largest gains, and the state of the workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from tuner import units
from tuner.api.auth import Caller
from tuner.api.dashboard import labels
from tuner.api.dashboard.charts import plots
from tuner.api.dashboard.job_view import JobView, load, unread
from tuner.api.dashboard.pages import PageRoute, render
from tuner.api.dashboard.sessions import Viewer
from tuner.api.routes.jobs import seen
from tuner.api.service import Service, ServiceDep
from tuner.db import charts, kernels, races, totals, workers, workloads
from tuner.db.engine import Session
from tuner.db.jobs import STATES, Job
from tuner.db.kernels import Kernel
from tuner.errors import UsageError

router = APIRouter(route_class=PageRoute)

ROWS = 25
WINS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    job: Job
    view: JobView | None  # of its first workload; None of a model that was not read
    spark: str

    @property
    def unread(self) -> str:
        return unread(self.job)

    @property
    def done(self) -> int:
        return sum(task.trials_done for task in self.job.tasks)

    @property
    def budget(self) -> int:
        return self.job.trials * len(self.job.tasks)


@dataclass(frozen=True, kw_only=True)
class JobQuery:
    """The filter of the list, from the address."""

    states: Sequence[str]
    text: str
    cursor: str | None


def job_query(
    state: Annotated[list[str] | None, Query(max_length=8)] = None,
    q: Annotated[str, Query(max_length=200)] = "",
    cursor: Annotated[str | None, Query(max_length=500)] = None,
) -> JobQuery:
    """The filter of a request: a dependency of routes."""
    states = [name for name in state or () if name]
    return JobQuery(states=states, text=q.strip(), cursor=cursor or None)


ListQuery = Annotated[JobQuery, Depends(job_query)]


@router.get("/")
def page(request: Request, caller: Viewer, service: ServiceDep, query: ListQuery) -> Response:
    return render(request, "overview.html", overview(service, caller, query), caller=caller)


@router.get("/parts/jobs")
def part(request: Request, caller: Viewer, service: ServiceDep, query: ListQuery) -> Response:
    return render(request, "overview_jobs.html", overview(service, caller, query), caller=caller)


def overview(service: Service, caller: Caller, query: JobQuery) -> Mapping[str, Any]:
    """The context of the page: the jobs that pass the filter, gains and workers."""
    owner = None if caller.sees_all else caller.key_id
    unknown = [name for name in query.states if name not in STATES]
    if unknown:
        raise UsageError(f"unknown state {unknown[0][:40]!r}; jobs are {', '.join(STATES)}")
    with service.database.read() as session:
        listed = charts.find_jobs(
            session,
            state=query.states,
            text=query.text,
            owner=owner,
            cursor=query.cursor,
            limit=ROWS,
        )
        rows = [job_row(session, job_id, caller) for job_id in listed.items]
        best = [
            kernels.get(session, kernel_id)
            for kernel_id in charts.biggest_wins(session, limit=WINS)
        ]
        names = workloads.get_many(session, [kernel.workload for kernel in best])
        context = {
            "rows": rows,
            "next_cursor": listed.next,
            "first_page": query.cursor is None,
            "totals": totals.read(session),
            "wins": [(kernel, labels.label(names[kernel.workload])) for kernel in best],
            "typical": typical(best),
            "regressions": races.list_regressions(session, limit=WINS).items,
            "workers": workers.list_all(session),
            "states": STATES,
            "chosen_states": query.states,
            "text": query.text,
            "now": session.now(),
        }
    return context


def job_row(session: Session, job_id: str, caller: Caller) -> JobRow:
    job = seen(session, job_id, caller)
    if not job.tasks:
        return JobRow(job=job, view=None, spark="")
    view = load(session, job_id, caller)
    records = charts.records(session, job_id, count=view.task.trials_done)
    title = (
        f"best so far: {units.seconds(records[-1][1])} after {view.task.trials_done} trials"
        if records
        else "no timed trial"
    )
    return JobRow(
        job=job, view=view, spark=plots.sparkline(records, view.task.trials_done, title=title)
    )


def typical(promoted: Sequence[Kernel]) -> float | None:
    """Geometric mean of these kernels' gains over their default schedules."""
    gains = [
        log(kernel.default_median_s / kernel.median_s)
        for kernel in promoted
        if kernel.default_median_s
    ]
    return exp(sum(gains) / len(gains)) if gains else None
