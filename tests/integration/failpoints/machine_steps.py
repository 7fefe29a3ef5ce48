"""Steps of the machines at work, and of what is learnt about them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.integration.failpoints.step import (
    SPEC,
    Step,
    counted,
    held,
    machine_known,
    only_job,
    queued,
)
from tests.support.database_samples import ManualClock
from tests.support.fleet_job import queue_job
from tests.support.search_history import search_past
from tests.support.targets import host_target
from tuner.db import jobs, workers
from tuner.db.engine import Database
from tuner.db.tables import CalibrationRow, CostModelRow, LaneSpanRow, TargetRow, WorkerRow
from tuner.measure.assignment import Lane
from tuner.target.target import Limits as MachineLimits
from tuner.workers.fleet.messages import Calibrated, FleetPlan, Limits, Span
from tuner.workers.jobs.cluster_hosts import ClusterHosts, worker_id
from tuner.workers.jobs.presence import Presence
from tuner.workers.jobs.task_preparation import note_limits
from tuner.workers.jobs.timeline import Timeline, join
from tuner.workers.jobs.transfer import start_of

LANE = Lane(name="cpu:1", cores=(1,))
PLAN = FleetPlan(lanes=(LANE,), builder_cores=(0,), alternates=False, limits=Limits(), storage="")


# Machines among the workers.


def presence(database: Database) -> Presence:
    return Presence(database, host_target(), [LANE])


def act_beat(database: Database, folder: Path) -> None:
    before = presence(database)
    before.join()
    threading.Event().wait(7.0)  # longer than the pause between two beats
    os._exit(0)  # an orchestrator that is gone does not say so


def act_left(database: Database, folder: Path) -> None:
    here = presence(database)
    here.join()
    here.leave()


def act_neighbour(database: Database, folder: Path) -> None:
    """Another machine of a cluster is seen for the first time."""
    noted = {
        "name": "another",
        "target": host_target().key,
        "isolation": "process",
        "lanes": "[]",
        "versions": "{}",
        "labels": "{}",
    }
    hosts = ClusterHosts(database)
    hosts._note(worker_id("another"), noted, joined=False)


# What a fleet did and found out about its lanes.


def timeline(database: Database) -> Timeline:
    return Timeline(database, worker=join(database, host_target(), PLAN), job=only_job(database))


def act_timeline(database: Database, folder: Path) -> None:
    now_s, spans = time.monotonic(), timeline(database)
    spans.add([Span(worker="cpu:1", activity="time", number=0, started_s=now_s - 1, ended_s=now_s)])
    spans.flush()


def act_calibration(database: Database, folder: Path) -> None:
    calibrated = Calibrated(
        lane="cpu:1",
        at_s=time.monotonic(),
        median_s=6e-5,
        expected_s=6e-5,
        in_band=True,
        drained=False,
        suspect_since_s=None,
    )
    timeline(database).calibrated([calibrated])


def act_limits(database: Database, folder: Path) -> None:
    job = only_job(database)
    with database.read() as session:
        target = jobs.get(session, job).target
    note_limits(database, target, MachineLimits(fma_flops=2e11, fma_flops_best=2e11, bandwidth=()))


# A model trained on what is known.


def past_known(database: Database, folder: Path) -> None:
    clocked = replace(database, clock=ManualClock())
    search_past(clocked, SPEC, ManualClock())
    queue_job(database, ["matmul:M=96,N=64,K=128"], trials=4)
    held(database)


def act_ranker(database: Database, folder: Path) -> None:
    with database.read() as session:
        job = jobs.get(session, only_job(database))
    assert (
        start_of(database, job=job, task=job.tasks[0], op="matmul", target=host_target()).prior
        is not None
    )


MACHINE_STEPS: Mapping[str, Step] = {
    "join": Step(
        prepare=machine_known,
        act=lambda database, _: presence(database).join(),
        effects=lambda d: counted(d, of=WorkerRow),
    ),
    "beat": Step(
        prepare=machine_known,
        act=act_beat,
        effects=lambda database: counted(
            database, WorkerRow.heartbeat_at > WorkerRow.joined_at, of=WorkerRow
        ),
    ),
    "neighbour": Step(
        prepare=machine_known,
        act=act_neighbour,
        effects=lambda database: counted(database, of=WorkerRow),
    ),
    "left": Step(
        prepare=machine_known,
        act=act_left,
        effects=lambda database: counted(database, WorkerRow.state == workers.LOST, of=WorkerRow),
    ),
    "timeline": Step(
        prepare=queued,
        act=act_timeline,
        effects=lambda database: counted(database, of=LaneSpanRow),
        again=2,
    ),
    "calibration": Step(
        prepare=queued,
        act=act_calibration,
        effects=lambda database: counted(database, of=CalibrationRow),
        again=2,
    ),
    "limits": Step(
        prepare=queued,
        act=act_limits,
        effects=lambda database: counted(
            database, TargetRow.measured_at.is_not(None), of=TargetRow
        ),
    ),
    "ranker": Step(
        prepare=past_known,
        act=act_ranker,
        effects=lambda database: counted(database, of=CostModelRow),
    ),
}
