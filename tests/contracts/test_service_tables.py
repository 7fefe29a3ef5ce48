"""Workers, lanes, keys and cost models, on both databases."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from tests.support.database_samples import ManualClock, sample_target
from tuner.api import answers
from tuner.db import cost_models, keys, lanes, runners, targets, workers
from tuner.db.engine import Database
from tuner.db.errors import NotFound
from tuner.db.tables import ApiKeyRow
from tuner.errors import UsageError


def worker(worker_id: str = "w1") -> workers.NewWorker:
    lane = {"name": "cpu:1", "cores": [1]}
    return workers.NewWorker(
        id=worker_id,
        host="h",
        target=None,
        isolation="full",
        lanes=[lane],
        versions={"tvm": "0.27"},
    )


def test_workers_join_fall_silent_and_return(database: Database, clock: ManualClock) -> None:
    with database.write() as session:
        assert workers.join(session, worker()).lanes == [{"name": "cpu:1", "cores": [1]}]
        workers.join(session, worker("w2"))
    clock.advance(20)
    with database.write() as session:
        assert workers.heartbeat(session, "w2") == workers.ACTIVE
        assert workers.mark_lost(session, timedelta(seconds=15)) == ("w1",)
        assert [worker.id for worker in workers.list_all(session, state=["lost"])] == ["w1"]
        assert workers.get(session, "w1").reason == "silent for more than 15 s"
        assert workers.heartbeat(session, "w1") == workers.ACTIVE
        workers.set_state(session, "w2", workers.QUARANTINED, "drifts")
        assert workers.join(session, worker("w2")).state == workers.QUARANTINED
        assert workers.heartbeat(session, "w2") == workers.QUARANTINED
    with pytest.raises(NotFound, match="no worker 'w9'"), database.write() as session:
        workers.heartbeat(session, "w9")
    with pytest.raises(UsageError, match="unknown state"), database.write() as session:
        workers.set_state(session, "w1", "asleep")


def test_a_sign_of_life_from_before_the_clock_was_set_back_is_none(
    database: Database, clock: ManualClock
) -> None:
    """The dead one would pass for alive until the clock is where it was."""
    with database.write() as session:
        target = targets.remember(session, sample_target())
        for name in ("dead", "alive"):
            workers.join(session, replace(worker(name), target=target))
    clock.advance(-3600)
    with database.write() as session:
        assert not runners.has_runner(session, target)
        workers.heartbeat(session, "alive")
        assert runners.has_runner(session, target)
        assert workers.mark_lost(session, workers.SILENT) == ("dead",)
        now, lost = session.now(), workers.get(session, "dead")
    assert answers.worker(replace(lost, state=workers.ACTIVE), now).state == workers.LOST


def test_activity_is_summed_by_station_and_kind(database: Database, clock: ManualClock) -> None:
    start = clock()
    with database.write() as session:
        workers.join(session, worker())
        spans = [
            lanes.LaneSpan(
                worker="w1",
                lane=lane,
                kind=kind,
                started_at=start + timedelta(seconds=offset_s),
                ended_at=start + timedelta(seconds=offset_s + length),
            )
            for lane, kind, offset_s, length in (
                ("cpu:1", "time", 0.0, 0.25),
                ("cpu:1", "time", 1.0, 0.5),
                ("cpu:1", "idle", 2.0, 3.0),
                ("build:0", "build", 0.0, 1.5),
                ("cpu:1", "time", -5.0, 1.0),
                ("cpu:1", "time", 60.0, 1.0),
            )
        ]
        lanes.add_spans(session, spans)
    with database.read() as session:
        activities = lanes.activity(session, since=start, until=start + timedelta(minutes=1))
    assert [(activity.worker, activity.lane, activity.kind) for activity in activities] == [
        ("w1", "build:0", "build"),
        ("w1", "cpu:1", "idle"),
        ("w1", "cpu:1", "time"),
    ]
    assert [activity.seconds for activity in activities] == pytest.approx(
        [1.5, 3.0, 0.75], abs=5e-3
    )


def test_timelines_and_calibrations(database: Database, clock: ManualClock) -> None:
    start = clock()
    moments = [start + timedelta(seconds=step) for step in range(5)]
    spans = [
        lanes.LaneSpan(
            worker="w1", lane="cpu:1", kind=kind, started_at=moments[i], ended_at=moments[i + 1]
        )
        for i, kind in enumerate(lanes.KINDS[:4])
    ]
    calibration = lanes.Calibration(
        worker="w1",
        lane="cpu:1",
        measured_at=start,
        median_s=1.1e-3,
        expected_s=1e-3,
        in_band=False,
    )
    with database.write() as session:
        workers.join(session, worker())
        lanes.add_spans(session, spans[::-1])
        lanes.add_spans(session, [])
        lanes.add_calibration(session, calibration)
        with pytest.raises(UsageError, match="unknown kind"):
            lanes.add_spans(
                session,
                [
                    lanes.LaneSpan(
                        worker="w1", lane="cpu:1", kind="nap", started_at=start, ended_at=start
                    )
                ],
            )
    with database.write() as session:
        assert lanes.timeline(
            session, worker="w1", lane="cpu:1", since=moments[1], until=moments[3]
        ) == tuple(spans[1:3])
        assert lanes.calibrations(session, "w1", "cpu:1") == (calibration,)
        assert [lanes.delete_spans_before(session, moments[3], 2) for _ in range(3)] == [2, 1, 0]
        assert lanes.timeline(session, since=start, until=moments[4]) == tuple(spans[3:])


def test_keys_are_shown_once_and_end(database: Database, clock: ManualClock) -> None:
    with database.write() as session:
        made, token = keys.create(
            session, name="ci", scopes=["submit", "read"], expires_at=clock() + timedelta(days=1)
        )
        _, other = keys.create(session, name="other", scopes=["admin"], quota=3)
        stored = session.scalars(select(ApiKeyRow.digest)).all()
    assert token.startswith(f"tk_{made.id}_") and made.scopes == {"read", "submit"}
    assert not any(digest in token for digest in stored)
    forged = f"tk_{made.id}_{other.split('_')[2]}"
    with database.read() as session:
        assert keys.authenticate(session, token) == made
        for wrong in (
            forged,
            token[:-1],
            token + "0",
            "",
            "tk",
            "tk__",
            f"xx{token[2:]}",
            "tk_\x00_é",
            token.upper(),
        ):
            assert keys.authenticate(session, wrong) is None
    with database.write() as session:
        keys.touch(session, made.id)
        assert keys.get(session, made.id).last_used_at == clock()
    clock.advance(24 * 3600)
    with database.write() as session:
        assert keys.authenticate(session, token) is None
        key = keys.authenticate(session, other)
        assert key is not None and key.quota == 3
        keys.revoke(session, key.id)
        assert keys.authenticate(session, other) is None
        assert sorted(key.name for key in keys.list_all(session)) == ["ci", "other"]
        with pytest.raises(UsageError, match=r"needs scopes out of read, submit, submit:source"):
            keys.create(session, name="x", scopes=["root"])


def test_the_last_models_are_kept(database: Database) -> None:
    with database.write() as session:
        target = targets.remember(session, sample_target())
        assert cost_models.latest(session, target, 1) is None
        for trained_on in range(5):
            cost_models.save(
                session,
                target=target,
                feature_version=1,
                blob=bytes([trained_on]),
                trained_on=trained_on,
                metrics={"rho": 0.5},
            )
        model = cost_models.latest(session, target, 1)
        assert model is not None and (model.blob, model.trained_on, model.metrics) == (
            b"\x04",
            4,
            {"rho": 0.5},
        )
        assert cost_models.latest(session, target, 2) is None
