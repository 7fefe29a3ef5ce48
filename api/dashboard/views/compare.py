"""The page that compares two jobs or two kernels."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response

from tuner import units
from tuner.api.auth import Caller
from tuner.api.dashboard import labels, loops
from tuner.api.dashboard.charts import plots
from tuner.api.dashboard.charts.plots import Interval
from tuner.api.dashboard.job_view import JobView
from tuner.api.dashboard.job_view import load as load_job
from tuner.api.dashboard.pages import PageRoute, Theme, image, render
from tuner.api.dashboard.sessions import Viewer
from tuner.api.dashboard.views.kernel import load as load_kernel
from tuner.api.problems import Problem
from tuner.api.routes.jobs import seen
from tuner.api.service import ServiceDep
from tuner.db import charts, workloads
from tuner.db.engine import Session
from tuner.db.jobs import Job
from tuner.errors import UsageError
from tuner.measure.outcome import Timed
from tuner.spaces.core.space import Config

router = APIRouter(prefix="/compare", route_class=PageRoute)

Id = Annotated[str, Query(max_length=64)]
DIFF_LINES = 400
MOST_WORKLOADS = 500  # rows of the table of all workloads


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPair:
    """A workload of either job with its best trial in both; None where a job has none."""

    key: str
    label: str
    best_s: tuple[float | None, float | None]

    @property
    def ratio(self) -> float | None:
        """How many times as fast A's best trial is as B's."""
        first, second = self.best_s
        return second / first if first and second else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareQuery:
    """What is compared, and how it is drawn, as written in the address."""

    a: str
    b: str
    workload: str  # key of the one whose curves are drawn; empty for the first of both jobs
    regret: bool
    x_log: bool


def compare_query(
    a: Id = "",
    b: Id = "",
    workload: Id = "",
    regret: bool = True,
    xscale: Literal["linear", "log"] = "linear",
) -> CompareQuery:
    """What a request compares: a dependency of routes."""
    return CompareQuery(
        a=a.strip(), b=b.strip(), workload=workload, regret=regret, x_log=xscale == "log"
    )


Compared = Annotated[CompareQuery, Depends(compare_query)]


@router.get("")
def page(request: Request, caller: Viewer, service: ServiceDep, query: Compared) -> Response:
    context: dict[str, Any] = {"query": query, "kind": None}
    with service.database.read() as session:
        context["recent"] = charts.find_jobs(
            session, owner=None if caller.sees_all else caller.key_id, limit=50
        ).items
        if query.a and query.b:
            context |= compared(session, query, caller)
    return render(request, "compare.html", context, caller=caller)


@router.get("/charts/{name}.svg")
def chart(
    name: Literal["curves", "race"],
    request: Request,
    caller: Viewer,
    service: ServiceDep,
    query: Compared,
    theme: Theme = "light",
) -> Response:
    """The page's drawing as an image: the curves of jobs, the intervals of kernels."""
    with service.database.read() as session:
        context = compared(session, query, caller)
    drawn = context.get({"curves": "overlay_svg", "race": "intervals_svg"}[name])
    if drawn is None:
        raise Problem(404, "not_found", "jobs have the chart 'curves', kernels the chart 'race'")
    return image(request, drawn, f"{query.a}-{query.b}-{name}", theme)


def compared(session: Session, query: CompareQuery, caller: Caller) -> Mapping[str, Any]:
    kinds = {identifier[:1] for identifier in (query.a, query.b)}
    if len(kinds) != 1:
        raise UsageError(
            f"{query.a[:40]!r} and {query.b[:40]!r} are not of one kind; compare two jobs (j…) or "
            f"two kernels (k…)"
        )
    if kinds == {"k"}:
        return of_kernels(session, query.a, query.b)
    return of_jobs(session, query, caller)


def of_jobs(session: Session, query: CompareQuery, caller: Caller) -> Mapping[str, Any]:
    jobs = [seen(session, job_id, caller) for job_id in (query.a, query.b)]
    pairs = workload_pairs(session, jobs)
    positions = positions_of(jobs, query.workload, pairs)
    views = [
        load_job(session, job.id, caller, position)
        for job, position in zip(jobs, positions, strict=True)
    ]
    records = [
        charts.records(session, view.job.id, view.position, count=view.task.trials_done)
        for view in views
    ]
    ends = [max(view.task.trials_done, 1) for view in views]
    words = " and ".join(
        f"{view.job.id}: {units.seconds(view.best_s)} after {end} trials"
        for view, end in zip(views, ends, strict=True)
    )
    configs = [
        best_config(session, view, job_records)
        for view, job_records in zip(views, records, strict=True)
    ]
    return {
        "kind": "jobs",
        "views": views,
        "same_workload": views[0].task.workload == views[1].task.workload,
        "pairs": pairs[:MOST_WORKLOADS],
        "pairs_left_out": max(0, len(pairs) - MOST_WORKLOADS),
        "typical": typical([pair.ratio for pair in pairs]),
        "overlay_svg": plots.overlay(
            records, ends, regret=query.regret, x_log=query.x_log, title=f"Best so far of {words}"
        ),
        "reached": reached(records),
        "knobs": differences(*configs),
        "diff": [],
    }


def workload_pairs(session: Session, jobs: Sequence[Job]) -> list[WorkloadPair]:
    """Every workload of two jobs with its best trials, in the order of the first job's."""
    best = [{task.workload: task.best_median_s for task in job.tasks} for job in jobs]
    keys = list(dict.fromkeys([*best[0], *best[1]]))
    stored = workloads.get_many(session, keys)
    return [
        WorkloadPair(
            key=key,
            label=labels.label(stored[key]),
            best_s=(best[0].get(key), best[1].get(key)),
        )
        for key in keys
    ]


def positions_of(
    jobs: Sequence[Job], workload: str, pairs: Sequence[WorkloadPair]
) -> tuple[int, int]:
    """Where each job has the workload that is drawn.

    Without one in the address, it is the first that both have, else each job's first.
    Raises UsageError for a workload that one of them does not have.
    """
    first, second = ({task.workload: task.position for task in job.tasks} for job in jobs)
    if workload:
        if workload not in first or workload not in second:
            raise UsageError(f"workload {workload!r} is not one of both jobs; leave it out")
        return first[workload], second[workload]
    common = next((pair.key for pair in pairs if pair.key in first and pair.key in second), None)
    return (0, 0) if common is None else (first[common], second[common])


def typical(ratios: Sequence[float | None]) -> float | None:
    """The geometric mean of the ratios that are known; None of none."""
    logs = [log(ratio) for ratio in ratios if ratio]
    return exp(sum(logs) / len(logs)) if logs else None


def best_config(session: Session, view: JobView, records: tuple[tuple[int, float], ...]) -> Config:
    trials = (
        charts.some_trials(session, view.job.id, view.position, [records[-1][0]]) if records else ()
    )
    return trials[0].trial.config if trials and isinstance(trials[0].trial.outcome, Timed) else {}


def reached(records: list[tuple[tuple[int, float], ...]]) -> list[tuple[str, list[int | None]]]:
    """The trials after which each job was within given shares of the better result of both."""
    floor = min((job_records[-1][1] for job_records in records if job_records), default=None)
    if floor is None:
        return []
    rows = []
    for part in (0.5, 0.2, 0.1, 0.05, 0.01, 0.0):
        firsts = [
            next((n for n, value in job_records if value <= floor * (1 + part)), None)
            for job_records in records
        ]
        rows.append((f"within {100 * part:.0f}%" if part else "the best of both", firsts))
    return rows


def of_kernels(session: Session, a: str, b: str) -> Mapping[str, Any]:
    views = [load_kernel(session, kernel_id) for kernel_id in (a, b)]
    first, second = (view.kernel for view in views)
    entries = [
        Interval(
            name=name,
            median_s=kernel.median_s,
            low_s=kernel.ci95_s[0],
            high_s=kernel.ci95_s[1],
            own=kernel is first,
        )
        for name, kernel in (("A", first), ("B", second))
    ]
    apart = first.ci95_s[1] < second.ci95_s[0] or second.ci95_s[1] < first.ci95_s[0]
    traces = [(loops.trace_text(view.schedule) or "").splitlines() for view in views]
    changed = difflib.unified_diff(traces[0], traces[1], a, b, lineterm="", n=2)
    return {
        "kind": "kernels",
        "views": views,
        "same_workload": first.workload == second.workload,
        "intervals_svg": plots.intervals(entries),
        "apart": apart,
        "ratio": second.median_s / first.median_s,
        "knobs": differences(first.config, second.config),
        "diff": list(changed)[:DIFF_LINES],
    }


def differences(a: Config, b: Config) -> list[tuple[str, Any, Any, bool]]:
    """Every knob with both values and whether they differ, the differing ones first."""
    names = dict.fromkeys([*a, *b])
    rows = [(name, a.get(name), b.get(name), a.get(name) != b.get(name)) for name in names]
    return sorted(rows, key=lambda row: not row[3])
