"""What calibrations leave in the database: each of them, the trials in doubt, and which
lanes of a worker rest."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.databases import new_database
from tests.support.fleet_job import queue_job
from tests.support.targets import ZEN5
from tuner.db import lanes as lane_queries
from tuner.db import leases, targets, trials, workers
from tuner.db.engine import Database
from tuner.measure.assignment import Lane
from tuner.measure.outcome import Conditions, Timed, Trial
from tuner.workers.fleet.messages import Calibrated, FleetPlan, Limits, Span
from tuner.workers.jobs.timeline import Timeline, join

PLAN = FleetPlan(
    lanes=(Lane(name="cpu:1", cores=(1,)),),
    builder_cores=(0,),
    alternates=False,
    limits=Limits(isolation="sealed without files"),
    storage="",
)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = new_database(tmp_path / "timeline.db")
    with opened.write() as session:
        targets.remember(session, ZEN5)
    yield opened
    opened.close()


def calibrated(
    *, drained: bool, suspect_since_s: float | None = None, ratio: float = 1.0
) -> Calibrated:
    return Calibrated(
        lane="cpu:1",
        at_s=time.monotonic(),
        median_s=ratio * 60e-6,
        expected_s=60e-6,
        in_band=not drained,
        drained=drained,
        suspect_since_s=suspect_since_s,
    )


def span(activity: str, started_s: float, seconds: float) -> Span:
    return Span(
        worker="cpu:1",
        activity=activity,
        number=0,
        started_s=started_s,
        ended_s=started_s + seconds,
    )


@pytest.mark.parametrize("jump_s", [-3600.0, 86400.0])
def test_a_clock_that_is_set_dates_what_comes_later(database: Database, jump_s: float) -> None:
    """Nothing lasts a day longer for it, and the dates are those of the clock as it is."""
    steady_s, epoch_s = 50.0, 1.7e9
    timeline = Timeline(
        database,
        worker=join(database, ZEN5, PLAN),
        job="",
        steady_s=lambda: steady_s,
        epoch_s=lambda: epoch_s,
    )
    timeline.add([span("build", 49.0, 0.5)])
    steady_s, epoch_s = 52.0, epoch_s + 2.0 + jump_s
    timeline.add([span("wait", 49.5, 1.5), span("time", 51.0, 0.25)])
    timeline.calibrated([replace(calibrated(drained=False), at_s=51.0)])
    start = datetime.fromtimestamp(1.7e9, UTC)
    late = start + timedelta(seconds=jump_s)
    with database.read() as session:
        since = start - timedelta(days=2)
        spans = lane_queries.timeline(session, since=since, until=start + timedelta(days=2))
        (noted,) = lane_queries.calibrations(session, join_id(database), "cpu:1")
    assert {each.kind: (each.started_at, each.ended_at) for each in spans} == {
        "build": (start - timedelta(seconds=1.0), start - timedelta(seconds=0.5)),
        "wait": (late - timedelta(seconds=0.5), late + timedelta(seconds=1.0)),
        "time": (late + timedelta(seconds=1.0), late + timedelta(seconds=1.25)),
    }
    assert noted.measured_at == late + timedelta(seconds=1.0)


def test_a_machine_is_registered_with_the_isolation_it_has(database: Database) -> None:
    name = join(database, ZEN5, PLAN)
    with database.read() as session:
        assert workers.get(session, name).isolation == "sealed without files"


def test_a_lane_that_drifts_shows_and_its_trials_are_marked(database: Database) -> None:
    job_id = queue_job(database, ["softmax:M=13,N=17"], trials=4)
    with database.write() as session:
        job, lease = leases.claim(session, job_id, owner="test", lifetime=timedelta(seconds=60))
        for number, lane in enumerate(("cpu:1", "cpu:2")):
            timed = Timed(
                samples_s=(1e-6,),
                max_rel_error=0.0,
                conditions=Conditions(lane=lane, isolation="process"),
                artifact="a" * 64,
            )
            trials.record(
                session,
                lease,
                Trial(number=number, config={}, outcome=timed),
                position=0,
                round=0,
                predicted=None,
                worker=lane,
                attempts=1,
                quarantined=False,
            )
    timeline = Timeline(database, worker=join(database, ZEN5, PLAN), job=job.id)
    timeline.calibrated([calibrated(drained=False)])
    minute_s = time.monotonic() - 60.0
    timeline.calibrated([calibrated(drained=True, suspect_since_s=minute_s)])
    with database.read() as session:  # another machine's lane may have the same name
        assert [stored.suspect for stored in trials.stored_of_task(session, job_id)] == [None, None]
    timeline.add([span("time", time.monotonic(), 1.0)])
    timeline.calibrated([calibrated(drained=True, suspect_since_s=minute_s, ratio=1.4)])
    name = join_id(database)
    with database.read() as session:
        marks = [stored.suspect for stored in trials.stored_of_task(session, job_id)]
        worker = workers.get(session, name)
        noted = lane_queries.calibrations(session, name, "cpu:1")
    assert marks == [
        "lane cpu:1 had drifted: its calibration was at 1.40 of its band's middle",
        None,
    ]
    assert (worker.state, worker.reason) == (
        workers.DRAINING,
        "lane cpu:1 is drained, at 1.40 of its band",
    )
    assert [calibration.in_band for calibration in noted] == [False, False, True]
    timeline.calibrated([calibrated(drained=False)])
    with database.read() as session:
        call = workers.get(session, name)
    assert (call.state, call.reason) == (workers.ACTIVE, None)


def test_what_an_operator_set_stays(database: Database) -> None:
    timeline = Timeline(database, worker=join(database, ZEN5, PLAN), job="")
    with database.write() as session:
        workers.set_state(session, join_id(database), workers.DRAINING, "moves to another rack")
    for drained in (True, False):
        timeline.calibrated([calibrated(drained=drained)])
    with database.read() as session:
        assert workers.get(session, join_id(database)).reason == "moves to another rack"


def join_id(database: Database) -> str:
    with database.read() as session:
        (only,) = workers.list_all(session)
    return only.id
