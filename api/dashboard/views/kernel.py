"""The page of a kernel: its speed, limits, verification, provenance and downloads."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request, Response

from tuner.api.artifacts import DownloadHeaders
from tuner.api.dashboard import labels, limits, loops
from tuner.api.dashboard.charts import fronts, history, plots
from tuner.api.dashboard.charts.plots import Interval
from tuner.api.dashboard.pages import PageRoute, Theme, image, render
from tuner.api.dashboard.sessions import Viewer
from tuner.api.dashboard.snippets import delivery, snippets
from tuner.api.problems import Problem
from tuner.api.routes.kernels import KernelId, get_artifact
from tuner.api.service import ServiceDep
from tuner.db import artifacts, jobs, kernels, races, targets, tradeoffs, workloads
from tuner.db.engine import Session
from tuner.db.errors import NotFound
from tuner.db.kernels import Kernel
from tuner.db.workloads import StoredWorkload
from tuner.export.artifacts import ArtifactMissing
from tuner.measure.objective import CODE_SIZE, MEMORY
from tuner.target.target import Target
from tuner.workload.workload import Workload

router = APIRouter(prefix="/kernels", route_class=PageRoute)

MOST_SOURCE = 200_000  # characters of generated code on the page; the rest is in the API's answer
MOST_ARCHIVE = 32 * 1024 * 1024  # bytes of an export that is opened for its names
LINEAGE = 50
SHOWN_RACES = 50  # rows of the table of races over time


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelView:
    kernel: Kernel
    stored: StoredWorkload
    workload: Workload | None
    target: Target
    schedule: Mapping[str, Any]

    @property
    def label(self) -> str:
        return labels.label(self.stored)

    @property
    def speedup(self) -> float | None:
        kernel = self.kernel
        return kernel.default_median_s / kernel.median_s if kernel.default_median_s else None


def load(session: Session, kernel_id: str) -> KernelView:
    kernel = kernels.get(session, kernel_id)
    stored = workloads.get(session, kernel.workload)
    return KernelView(
        kernel=kernel,
        stored=stored,
        workload=limits.workload_of(stored.document),
        target=targets.get(session, kernel.target),
        schedule=kernels.schedule(session, kernel_id),
    )


@router.get("/{kernel_id}")
def page(kernel_id: KernelId, request: Request, caller: Viewer, service: ServiceDep) -> Response:
    with service.database.read() as session:
        view = load(session, kernel_id)
        # The download: the exported archive if promotion made one, else the measured library.
        artifact = artifacts.get(session, str(view.schedule.get("export") or view.kernel.artifact))
        lineage = kernels.lineage(session, kernel_id)[:LINEAGE]
        visible_job = job_exists(session, view.kernel.job)
        series = races.series(session, kernel_id)
        lost = races.list_regressions(session, state=(), kernel=kernel_id).items
        own = view.kernel
        choices = tradeoffs.choices(session, own.workload, own.target, own.threads, cache=own.cache)
        now = session.now()
    base = f"{request.url.scheme}://{request.headers.get('host', 'localhost')}"
    entries = race(view.kernel)
    archive = None
    if artifact.kind == "export" and artifact.size_bytes <= MOST_ARCHIVE:
        # The rest of the page is still useful, and the download reports what is missing.
        with suppress(ArtifactMissing):
            archive = service.artifacts.get(artifact.sha256)
    context = {
        "view": view,
        "now": now,
        "artifact": artifact,
        "lineage": lineage,
        "visible_job": visible_job,
        "entries": entries,
        "intervals_svg": plots.intervals(entries),
        "roofline_svg": roofline(view),
        "choices": choices,
        "fronts": {
            objective.title: drawing
            for objective in (MEMORY, CODE_SIZE)
            if (drawing := fronts.draw(choices, objective, own.id)) is not None
        },
        "losers": {
            name: entry
            for name, entry in view.kernel.race.items()
            if isinstance(entry, dict) and "failed" in entry
        },
        "races": series[: -SHOWN_RACES - 1 : -1],
        "races_count": len(series),
        "races_svg": history.draw(series),
        "races_words": history.summary(series),
        "regressions": lost,
        "trace": loops.trace_text(view.schedule),
        "before": loops.before(view.schedule, view.workload),
        "after": loops.after(view.schedule, view.workload, view.target, view.kernel),
        "sources": sources(view.schedule),
        "snippets": snippets(
            kernel_id, delivery(archive, view.schedule.get("symbol")), view.workload, base
        ),
        "work": None
        if view.workload is None
        else limits.work_of(view.workload, view.kernel.threads),
    }
    return render(request, "kernel.html", context, caller=caller)


@router.get("/{kernel_id}/charts/{name}.svg")
def chart(
    kernel_id: KernelId,
    name: Literal["race", "roof", "races"],
    request: Request,
    caller: Viewer,
    service: ServiceDep,
    theme: Theme = "light",
) -> Response:
    """One drawing of the page as an image."""
    with service.database.read() as session:
        view = load(session, kernel_id)
        series = races.series(session, kernel_id) if name == "races" else ()
    match name:
        case "race":
            drawn: str | None = plots.intervals(race(view.kernel))
        case "roof":
            drawn = roofline(view)
        case _:
            drawn = history.draw(series)
    if drawn is None:
        raise Problem(404, "not_found", f"kernel {kernel_id} has nothing for the chart {name!r}")
    return image(request, drawn, f"{kernel_id}-{name}", theme)


@router.get("/{kernel_id}/download")
def download(
    kernel_id: KernelId,
    caller: Viewer,
    service: ServiceDep,
    headers: Annotated[DownloadHeaders, Depends()],
) -> Response:
    """The API's artifact for the holder of a session."""
    return get_artifact(kernel_id, caller, service, headers)


def job_exists(session: Session, job_id: str | None) -> bool:
    if job_id is None:
        return False
    try:
        jobs.get(session, job_id)
    except NotFound:
        return False
    return True


def race(kernel: Kernel) -> list[Interval]:
    """The kernel and its rivals in the race, the fastest first.

    Other finalists of the search are among the rivals.
    """
    low, high = kernel.ci95_s
    entries = [
        Interval(name="this kernel", median_s=kernel.median_s, low_s=low, high_s=high, own=True)
    ]
    for name, entry in kernel.race.items():
        own = name == "kernel" or (
            kernel.trial is not None and kernel.trial > 0 and name == f"trial {kernel.trial}"
        )
        if own or not isinstance(entry, dict) or not entry.get("median_s"):
            continue
        median = float(entry["median_s"])
        low, high = (entry.get("ci95_s") or (median, median))[:2]
        entries.append(Interval(name=name, median_s=median, low_s=float(low), high_s=float(high)))
    return sorted(entries, key=lambda entry: entry.median_s)


def roofline(view: KernelView) -> str | None:
    """The roofline plot as SVG.

    None if the workload or the machine's limits are unknown, or there is no arithmetic.
    """
    if view.workload is None:
        return None
    roofs = limits.roofs(view.workload, view.target, view.kernel.threads)
    work = limits.work_of(view.workload, view.kernel.threads)
    if not roofs or not work.flops or not work.nbytes:
        return None
    return plots.roofline(
        roofs, intensity=work.flops / work.nbytes, flops=work.flops / view.kernel.median_s
    )


def sources(schedule: Mapping[str, Any]) -> Mapping[str, str]:
    kept = schedule.get("sources")
    return (
        {str(name): str(text)[:MOST_SOURCE] for name, text in kept.items()}
        if isinstance(kept, dict)
        else {}
    )
