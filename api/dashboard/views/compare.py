"""The page that compares two jobs or two kernels."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from tuner import units
from tuner.api.auth import Caller
from tuner.api.dashboard import loops
from tuner.api.dashboard.charts import plots
from tuner.api.dashboard.charts.plots import Interval
from tuner.api.dashboard.job_view import JobView
from tuner.api.dashboard.job_view import load as load_job
from tuner.api.dashboard.pages import PageRoute, render
from tuner.api.dashboard.sessions import Viewer
from tuner.api.dashboard.views.kernel import load as load_kernel
from tuner.api.service import ServiceDep
from tuner.db import charts
from tuner.db.engine import Session
from tuner.errors import UsageError
from tuner.measure.outcome import Timed
from tuner.spaces.core.space import Config

router = APIRouter(prefix="/compare", route_class=PageRoute)

Id = Annotated[str, Query(max_length=64)]
DIFF_LINES = 400


@router.get("")
def page(
    request: Request,
    caller: Viewer,
    service: ServiceDep,
    a: Id = "",
    b: Id = "",
    regret: bool = True,
) -> Response:
    a, b = a.strip(), b.strip()
    context: dict[str, Any] = {"a": a, "b": b, "regret": regret, "kind": None}
    with service.database.read() as session:
        context["recent"] = charts.find_jobs(
            session, owner=None if caller.sees_all else caller.key_id, limit=50
        ).items
        if a and b:
            kinds = {identifier[:1] for identifier in (a, b)}
            if len(kinds) != 1:
                raise UsageError(
                    f"{a[:40]!r} and {b[:40]!r} are not of one kind; compare two jobs (j…) or "
                    f"two kernels (k…)"
                )
            context |= (
                of_kernels(session, a, b)
                if kinds == {"k"}
                else of_jobs(session, a, b, caller, regret=regret)
            )
    return render(request, "compare.html", context, caller=caller)


def of_jobs(session: Session, a: str, b: str, caller: Caller, *, regret: bool) -> Mapping[str, Any]:
    views = [load_job(session, job_id, caller) for job_id in (a, b)]
    records = [charts.records(session, view.job.id, count=view.task.trials_done) for view in views]
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
        "overlay_svg": plots.overlay(records, ends, regret=regret, title=f"Best so far of {words}"),
        "reached": reached(records),
        "knobs": differences(*configs),
        "diff": [],
    }


def best_config(session: Session, view: JobView, records: tuple[tuple[int, float], ...]) -> Config:
    trials = charts.some_trials(session, view.job.id, 0, [records[-1][0]]) if records else ()
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
