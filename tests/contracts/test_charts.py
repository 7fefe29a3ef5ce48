"""The dashboard's queries give the same on both databases: curves, records, lists and timelines."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from tests.support.database_samples import (
    ManualClock,
    add_claimed,
    add_job,
    failed,
    sample_kernel,
    timed,
)
from tuner.db import charts, lanes, promotions, trials, workers
from tuner.db.engine import Database, Session
from tuner.errors import UsageError


def test_a_tasks_history_by_number(database: Database) -> None:
    lease = add_claimed(database)
    with database.write() as session:
        for trial in (
            timed(2, 3e-3),
            timed(0, 5e-3),
            failed(1),
            timed(3, 4e-3),
            timed(4, 1e-3),
            failed(5),
        ):
            trials.record(session, lease, trial)
    with database.read() as session:
        timings = charts.timings(session, lease.job_id, 0)
        assert timings.numbers.tolist() == [0, 2, 3, 4] and timings.medians_s.tolist() == [
            5e-3,
            3e-3,
            4e-3,
            1e-3,
        ]
        assert sorted(charts.failures(session, lease.job_id, 0)) == [
            (1, "build_error"),
            (5, "build_error"),
        ]
        assert charts.records(session, lease.job_id) == ((0, 5e-3), (2, 3e-3), (4, 1e-3))
        assert set(charts.moments(session, lease.job_id, 0, [1, 4, 99])) == {1, 4}
        assert [
            each.trial.number for each in charts.some_trials(session, lease.job_id, 0, [4, 1])
        ] == [1, 4]
        assert charts.default_medians(session, [(lease.job_id, 0), ("none", 0)]) == {
            (lease.job_id, 0): 5e-3
        }
        assert len(charts.timings(session, "none", 0).numbers) == 0


def test_jobs_are_found_by_state_text_and_owner_page_by_page(database: Database) -> None:
    mine = [add_job(database, 8 + number, owner="me") for number in range(3)]
    other = add_job(database, 99)
    with database.read() as session:
        first = charts.find_jobs(session, limit=3)
        rest = charts.find_jobs(session, limit=3, cursor=first.next)
        assert sorted([*first.items, *rest.items]) == sorted([*mine, other]) and rest.next is None
        assert sorted(charts.find_jobs(session, owner="me").items) == sorted(mine)
        assert charts.find_jobs(session, text="N=99").items == (other,)
        assert charts.find_jobs(session, text=other[2:]).items == (other,)
        assert charts.find_jobs(session, text="100%_").items == ()
        assert charts.find_jobs(session, state=["running"]).items == ()
        with pytest.raises(UsageError, match="unknown state"):
            charts.find_jobs(session, state=["asleep"])


def test_the_biggest_wins_come_first(database: Database) -> None:
    with database.write() as session:
        made = [
            charts_kernel(session, extent, median)
            for extent, median in ((8, 1e-3), (16, 2e-4), (32, 1.5e-3))
        ]
    with database.read() as session:
        assert charts.biggest_wins(session, limit=2) == (made[1], made[0])


def charts_kernel(session: Session, extent: int, median_s: float) -> str:
    return promotions.promote(session, sample_kernel(session, median_s=median_s, extent=extent)).id


def test_a_timeline_keeps_its_last_spans(database: Database) -> None:
    began = ManualClock()()
    with database.write() as session:
        workers.join(
            session,
            workers.NewWorker(id="w", host="h", target=None, isolation=None, lanes=[], versions={}),
        )
        moments = [began + timedelta(seconds=second) for second in range(6)]
        spans = [
            lanes.LaneSpan(worker="w", lane="cpu:1", kind="time", started_at=start, ended_at=end)
            for start, end in pairwise(moments)
        ]
        lanes.add_spans(session, spans)
    with database.read() as session:
        latest = charts.lane_spans(
            session, since=began, until=began + timedelta(seconds=4), limit=3
        )
        assert [span.started_at for span in latest] == [
            began + timedelta(seconds=second) for second in (1, 2, 3)
        ]
        assert charts.latest_span(session) == began + timedelta(seconds=4)
