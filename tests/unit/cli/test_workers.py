"""`tuner workers`: machines with their state and what their lanes and builders did
today, from the database."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.command import Tuner
from tuner.db import lanes, workers
from tuner.db.engine import open_database


@pytest.fixture
def database_url(home: Path) -> str:
    url = f"sqlite:///{home}/fleet.db"
    database = open_database(url)
    with database.write() as session:
        lane = {"name": "cpu:1", "cores": [1]}
        new = workers.NewWorker(
            id="w1",
            host="h",
            target=None,
            isolation="sealed",
            lanes=[lane],
            versions={"tuner": "0.1.0", "ray": "2.56"},
        )
        workers.join(session, new)
        workers.set_state(session, "w1", workers.QUARANTINED, "cpu:1 drifts")
        now = session.now()
        for name, kind, seconds in (
            ("cpu:1", "time", 3.0),
            ("cpu:1", "idle", 1.0),
            ("build:0", "build", 2.0),
        ):
            span = lanes.LaneSpan(
                worker="w1",
                lane=name,
                kind=kind,
                started_at=now - timedelta(microseconds=1),
                ended_at=now + timedelta(seconds=seconds),
            )
            lanes.add_spans(session, [span])
    database.close()
    return url


def test_todays_use_is_shown_by_activity(tuner: Tuner, database_url: str) -> None:
    shown = tuner("workers", "--db", database_url)
    assert shown.code == 0
    assert "quarantined: cpu:1 drifts" in shown.out and "ray 2.56" in shown.out
    lane = next(
        line for line in shown.out.splitlines() if " cpu:1 " in line and "quarantined" not in line
    )
    assert "75%" in lane and "build:0 (builder)" in shown.out


def test_as_json_it_is_one_document(tuner: Tuner, database_url: str) -> None:
    (worker,) = tuner("workers", "--json", "--db", database_url).document["items"]
    assert (
        worker["state"] == "quarantined"
        and worker["versions"]["ray"] == "2.56"
        and worker["heartbeat_age_s"] >= 0
    )
    uses = {use["name"]: use for use in worker["today"]}
    assert uses["cpu:1"]["seconds"] == pytest.approx(
        {"build": 0.0, "wait": 0.0, "check": 0.0, "time": 3.0, "idle": 1.0}, abs=0.01
    )
    assert uses["build:0"]["builds"] and not uses["cpu:1"]["builds"]


def test_a_database_without_machines_says_so(tuner: Tuner, home: Path) -> None:
    url = f"sqlite:///{home}/empty.db"
    open_database(url).close()
    shown = tuner("workers", "--db", url)
    assert shown.code == 0 and "no machine has measured yet" in shown.err
