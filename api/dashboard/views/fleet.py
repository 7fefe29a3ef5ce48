"""The fleet: each lane's time by what it was spent on, drift of its calibration,
workers that were taken out and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from tuner.api.dashboard import units
from tuner.api.dashboard.charts import plots
from tuner.api.dashboard.charts.plots import Strip
from tuner.api.dashboard.pages import PageRoute, render
from tuner.api.dashboard.sessions import Viewer
from tuner.api.service import ServiceDep
from tuner.db import charts, lanes, workers
from tuner.db.charts import LaneTotal
from tuner.db.lanes import KINDS, Calibration
from tuner.errors import UsageError

router = APIRouter(prefix="/fleet", route_class=PageRoute)

WINDOWS = {"5m": 300, "1h": 3600, "24h": 86_400}
BINS = 380
CALIBRATIONS = 20
EARLIEST, LATEST = (
    datetime(2000, 1, 1, tzinfo=UTC),
    datetime(2999, 1, 1, tzinfo=UTC),
)  # that can be asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRow:
    worker: str
    lane: str
    seconds: dict[str, float]  # by kind, within the window
    share: dict[str, float]  # of the window


@router.get("")
def page(
    request: Request,
    caller: Viewer,
    service: ServiceDep,
    window: Annotated[Literal["5m", "1h", "24h"], Query()] = "1h",
    until: Annotated[datetime | None, Query()] = None,
) -> Response:
    with service.database.read() as session:
        machines = workers.list_all(session)
        now = datetime.now(UTC)
        # Without a moment in the address: the present, or the last thing that happened
        # where all is quiet.
        latest = charts.latest_span(session)
        length = timedelta(seconds=WINDOWS[window])
        quiet = latest is not None and latest < now - length
        end = (
            (until.replace(tzinfo=until.tzinfo or UTC))
            if until
            else latest + timedelta(seconds=30)
            if quiet and latest
            else now
        )
        if not EARLIEST <= end <= LATEST:
            raise UsageError(f"until is {end}; give a moment between {EARLIEST} and {LATEST}")
        spans = charts.lane_spans(session, since=end - length, until=end)
        drift = [
            (machine.id, str(lane["name"]), found)
            for machine in machines
            for lane in machine.lanes
            if (
                found := lanes.calibrations(
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
    context = {
        "workers": machines,
        "window": window,
        "windows": tuple(WINDOWS),
        "end": end,
        "earlier": (end - length).isoformat(),
        "later": (end + length).isoformat(),
        "rows": rows,
        "kinds": KINDS,
        "lanes_svg": plots.lanes(strips, labels, title=title) if strips else None,
        "drift": [(worker, lane, found, deviation(found)) for worker, lane, found in drift],
    }
    return render(request, "fleet.html", context, caller=caller)


def deviation(found: Sequence[Calibration]) -> float:
    """How much slower than expected the last calibration was: 0.02 is 2%."""
    return found[0].median_s / found[0].expected_s - 1.0 if found[0].expected_s > 0 else 0.0


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
    """For each lane and bin the kind that took most of it."""
    start, width = end - length, length.total_seconds() / BINS
    bins: dict[tuple[str, str], list[dict[str, float]]] = {}
    for span in spans:
        row = bins.setdefault((span.worker, span.lane), [{} for _ in range(BINS)])
        first, last = (
            (span.started_at - start).total_seconds(),
            (min(span.ended_at, end) - start).total_seconds(),
        )
        for at in range(max(0, int(first / width)), min(BINS - 1, int(last / width)) + 1):
            part = min(last, (at + 1) * width) - max(first, at * width)
            row[at][span.kind] = row[at].get(span.kind, 0.0) + max(part, 1e-9)
    return [
        Strip(
            name=f"{worker} {lane}",
            bins=[max(one, key=lambda kind: one[kind]) if one else "" for one in row],
        )
        for (worker, lane), row in sorted(bins.items())
    ]
