"""The machines of a cluster among the workers: joined, kept alive, lost when they leave
or fall silent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.database_samples import sample_target
from tests.support.databases import new_database
from tuner.api import answers
from tuner.db import targets, workers
from tuner.db.engine import Database
from tuner.measure.assignment import Lane
from tuner.workers.fleet.hosts import described
from tuner.workers.fleet.messages import HostPlan
from tuner.workers.jobs.cluster_hosts import BEAT_S, ClusterHosts, worker_id

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


class Clock:
    """Of the database and of the neighbours."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def moment(self) -> datetime:
        return START + timedelta(seconds=self.seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(tmp_path: Path, clock: Clock) -> Iterator[Database]:
    opened = new_database(tmp_path / "tuner.sqlite", clock=clock.moment)
    with opened.write() as session:
        targets.remember(session, sample_target())
    yield opened
    opened.close()


def host(name: str) -> HostPlan:
    return HostPlan(
        name=name,
        address="127.0.0.1:1",
        lanes=(Lane(name="lane0", cores=(2, 3)),),
        builder_cores=(0,),
        alternates=False,
        target=sample_target().key,
        versions={"python": "3.11"},
        labels={"rack": "7"},
        storage="",
    )


def states(database: Database, clock: Clock) -> dict[str, tuple[str, str | None]]:
    with database.read() as session:
        answered = [answers.worker(worker, clock.moment()) for worker in workers.list_all(session)]
    return {worker.id: (worker.state, worker.reason) for worker in answered}


def test_machines_come_live_and_leave(database: Database, clock: Clock) -> None:
    neighbours = ClusterHosts(database, clock=lambda: clock.seconds)
    left, right = (
        described(host(name), "confined", sample_target().key) for name in ("left", "right")
    )
    neighbours.seen([left, right])
    with database.read() as session:
        worker = workers.get(session, "left")
    assert (worker.isolation, worker.labels, worker.versions) == (
        "confined",
        {"rack": "7"},
        {"python": "3.11"},
    )
    assert worker.lanes == [{"name": "left/lane0", "cores": [2, 3]}]
    for _ in range(20):
        clock.seconds += BEAT_S
        neighbours.seen([left, right])
    assert states(database, clock) == {"left": ("active", None), "right": ("active", None)}
    neighbours.seen([right])
    assert states(database, clock) == {
        "left": ("lost", "it left the cluster"),
        "right": ("active", None),
    }
    neighbours.seen([left, right])
    assert states(database, clock)["left"] == ("active", None)


def test_a_look_soon_after_another_costs_no_transaction(database: Database, clock: Clock) -> None:
    neighbours = ClusterHosts(database, clock=lambda: clock.seconds)
    neighbours.seen([described(host("left"), "confined", sample_target().key)])
    clock.seconds += BEAT_S / 2
    neighbours.seen([described(host("left"), "confined", sample_target().key)])
    with database.read() as session:
        assert workers.get(session, "left").heartbeat_at == START


def test_who_falls_silent_is_lost_though_nobody_wrote_it_down(
    database: Database, clock: Clock
) -> None:
    ClusterHosts(database, clock=lambda: clock.seconds).seen(
        [described(host("left"), "confined", sample_target().key)]
    )
    clock.seconds += 29
    assert states(database, clock)["left"] == ("active", None)
    clock.seconds += 2
    assert states(database, clock)["left"] == ("lost", "silent for more than 30 s")


def test_a_quarantined_machine_stays_so_when_it_leaves(database: Database, clock: Clock) -> None:
    neighbours = ClusterHosts(database, clock=lambda: clock.seconds)
    neighbours.seen([described(host("left"), "confined", sample_target().key)])
    with database.write() as session:
        workers.set_state(session, "left", workers.QUARANTINED, "it drifts")
    neighbours.seen([])
    assert states(database, clock)["left"] == ("quarantined", "it drifts")


def test_long_names_stay_different() -> None:
    first, second = worker_id("x" * 62 + "1"), worker_id("x" * 62 + "2")
    assert first != second and len(first) == len(second) == 32
    assert worker_id("short") == "short"
