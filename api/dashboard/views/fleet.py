"""The page of the fleet: activity of the lanes, drift, and workers taken out of service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from tuner import units
from tuner.api.dashboard.charts import plots
from tuner.api.dashboard.charts.plots import Strip
from tuner.api.dashboard.pages import PageRoute, Theme, image, render
from tuner.api.dashboard.sessions import Viewer
from tuner.api.problems import Problem
from tuner.api.service import Service, ServiceDep
from tuner.db import charts, lanes, workers
from tuner.db.charts import LaneTotal
from tuner.db.lanes import KINDS, Calibration
from tuner.errors import UsageError

router = APIRouter(prefix="/fleet", route_class=PageRoute)

WINDOWS = {"5m": 300, "1h": 3600, "24h": 86_400}
BINS = 380
CALIBRATIONS = 20
# limits of the moment in the address
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
LATEST = datetime(2999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRow:
    worker: str
    lane: str
    seconds: dict[str, float]  # by kind, within the window
    share: dict[str, float]  # of the window


Window = Annotated[Literal["5m", "1h", "24h"], Query()]
Until = Annotated[datetime | None, Query()]


@router.get("")
def page(
    request: Request,
    caller: Viewer,
    service: ServiceDep,
    window: Window = "1h",
    until: Until = None,
) -> Response:
    return render(request, "fleet.html", activity(service, window, until), caller=caller)


@router.get("/charts/lanes.svg")
def chart(
    request: Request,
    caller: Viewer,
    service: ServiceDep,
    window: Window = "1h",
    until: Until = None,
    theme: Theme = "light",
) -> Response:
    """The timelines as an image."""
    drawn = activity(service, window, until)["lanes_svg"]
    if drawn is None:
        raise Problem(404, "not_found", "nothing was recorded in this window")
    return image(request, drawn, "fleet-lanes", theme)


def activity(service: Service, window: str, until: datetime | None) -> Mapping[str, Any]:
    """The context of the page. Raises UsageError for a moment out of range."""
    with service.database.read() as session:
        machines = workers.list_all(session)
        now = session.now()
        # Without a moment in the address, the window ends now, or with the last activity
        # if nothing happened within it.
        latest = charts.latest_span(session)
        length = timedelta(seconds=WINDOWS[window])
        quiet = latest is not None and latest < now - length
        if until:
            end = until.replace(tzinfo=until.tzinfo or UTC)
        else:
            end = latest + timedelta(seconds=30) if quiet and latest else now
        if not EARLIEST <= end <= LATEST:
            raise UsageError(f"until is {end}; give a moment between {EARLIEST} and {LATEST}")
        spans = charts.lane_spans(session, since=end - length, until=end)
        drift = [
            (machine.id, str(lane["name"]), timings)
            for machine in machines
            for lane in machine.lanes
            if (
                timings := lanes.calibrations(
                    session, machine.id, str(lane["name"]), limit=CALIBRATIONS
                )
            )
        ]
    rows, strips = lane_rows(spans, end, length), lane_strips(spans, end, length)
    title = f"Activity of {len(strips)} lanes over {units.duration(length.total_seconds())}"
    labels = [
        (share, units.moment(end - length * (1 - share))[11:19])
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    return {
        "workers": machines,
        "window": window,
        "windows": tuple(WINDOWS),
        "end": end,
        "now": now,
        "earlier": (end - length).isoformat(),
        "later": (end + length).isoformat(),
        "rows": rows,
        "kinds": KINDS,
        "lanes_svg": plots.lanes(strips, labels, title=title) if strips else None,
        "drift": [(worker, lane, timings, deviation(timings)) for worker, lane, timings in drift],
    }


def deviation(calibrations: Sequence[Calibration]) -> float:
    """How much slower than expected the last calibration was: 0.02 is 2%."""
    return (
        calibrations[0].median_s / calibrations[0].expected_s - 1.0
        if calibrations[0].expected_s > 0
        else 0.0
    )


def lane_rows(spans: Sequence[LaneTotal], end: datetime, length: timedelta) -> list[LaneRow]:
    sums: dict[tuple[str, str], dict[str, float]] = {}
    for span in spans:
        seconds = sums.setdefault((span.worker, span.lane), dict.fromkeys(KINDS, 0.0))
        seconds[span.kind] += max(0.0, (min(span.ended_at, end) - span.started_at).total_seconds())
    total = length.total_seconds()
    return [
        LaneRow(
            worker=worker,
            lane=lane,
            seconds=seconds,
            share={kind: value / total for kind, value in seconds.items()},
        )
        for (worker, lane), seconds in sorted(sums.items())
    ]


def lane_strips(spans: Sequence[LaneTotal], end: datetime, length: timedelta) -> list[Strip]:
    """For each lane, the kind of activity that took most of each bin."""
    start, width = end - length, length.total_seconds() / BINS
    bins: dict[tuple[str, str], list[dict[str, float]]] = {}
    for span in spans:
        row = bins.setdefault((span.worker, span.lane), [{} for _ in range(BINS)])
        first = (span.started_at - start).total_seconds()
        last = (min(span.ended_at, end) - start).total_seconds()
        for index in range(max(0, int(first / width)), min(BINS - 1, int(last / width)) + 1):
            part = min(last, (index + 1) * width) - max(first, index * width)
            row[index][span.kind] = row[index].get(span.kind, 0.0) + max(part, 1e-9)
    return [
        Strip(
            name=f"{worker} {lane}",
            bins=[max(shares, key=lambda kind: shares[kind]) if shares else "" for shares in row],
        )
        for (worker, lane), row in sorted(bins.items())
    ]
