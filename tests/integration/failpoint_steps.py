"""What the workers commit beside a job's trials, each as a step of its own: prepared,
done (and killed in it), and judged.

As a program, does one: `python -m tests.integration.failpoint_steps STEP DATABASE FOLDER`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from sqlalchemy import func, select, update

from tests.e2e.dashboard_samples import machine
from tests.e2e.kernel_samples import many_kernels
from tests.integration.fleet_job import QUICK, queue_job
from tests.support.database_samples import LIBRARY, ManualClock, kernel_run, sample_kernel
from tests.support.overtaken import overtaken
from tests.support.search_history import search_past
from tests.support.targets import host_target
from tuner.app.jobs.abandoned import take_back
from tuner.app.jobs.lifecycle import requeue
from tuner.app.jobs.retention import Keep, prune
from tuner.app.races import metaschedule
from tuner.app.service.reraces import announce, queue_due
from tuner.db import artifacts, jobs, kernels, leases, runs, targets, workers, workloads
from tuner.db.engine import Database, open_database
from tuner.db.tables import (
    ArtifactRow,
    CalibrationRow,
    CostModelRow,
    EventRow,
    IdempotencyRow,
    JobRow,
    KernelRow,
    LaneSpanRow,
    RaceRow,
    RegressionRow,
    RunRow,
    TargetRow,
    TaskRow,
    WorkerRow,
)
from tuner.export.artifacts import ArtifactStore
from tuner.lowering.importers.records import ForeignRecord
from tuner.measure.assignment import Lane
from tuner.measure.race import RaceResult
from tuner.models.description import Measurement
from tuner.models.workloads import ModelWorkload
from tuner.settings import load_settings
from tuner.target.target import Limits as MachineLimits
from tuner.workers.fleet.messages import Calibrated, FleetPlan, Limits, RaceOutcome, Ranked, Span
from tuner.workers.jobs import model_jobs as models
from tuner.workers.jobs import reracing
from tuner.workers.jobs.cluster_hosts import ClusterHosts, worker_id
from tuner.workers.jobs.fleet_cache import FleetCache
from tuner.workers.jobs.job_run import JobRun
from tuner.workers.jobs.kernel_cache import unanswered
from tuner.workers.jobs.options import Interruption, OrchestratorOptions
from tuner.workers.jobs.presence import Presence
from tuner.workers.jobs.progress import unobserved
from tuner.workers.jobs.promotion import INCUMBENT
from tuner.workers.jobs.runs import RunOptions, RunServer
from tuner.workers.jobs.task_preparation import note_limits
from tuner.workers.jobs.timeline import Timeline, join
from tuner.workers.jobs.transfer import start_of
from tuner.workload.spec import parse_spec, to_document

SPEC = "matmul:M=64,N=64,K=64"
LANE = Lane(name="cpu:1", cores=(1,))
PLAN = FleetPlan(lanes=(LANE,), builder_cores=(0,), alternates=False, limits=Limits(), storage="")


@dataclass(frozen=True, kw_only=True)
class Step:
    prepare: Callable[[Database, Path], None]
    act: Callable[[Database, Path], None]
    effects: Callable[[Database], int]  # how often it was done
    again: int = 1  # effects there are once it was done again after it had been done
    once: bool = False  # it cannot be done again, and says so


def only_job(database: Database) -> str:
    with database.read() as session:
        return session.scalars(select(JobRow.id).order_by(JobRow.id.desc()).limit(1)).one()


def counted(database: Database, *where: object, of: type) -> int:
    with database.read() as session:
        return session.scalars(select(func.count()).select_from(of).where(*where)).one()  # type: ignore[arg-type]  # columns


def queued(database: Database, folder: Path) -> None:
    queue_job(database, [SPEC], trials=4)


def held(database: Database, owner: str = "a machine that is gone:1") -> leases.Lease:
    with database.write() as session:
        return leases.claim(session, only_job(database), owner=owner, take_over=True)[1]


def running(database: Database, folder: Path) -> None:
    queued(database, folder)
    held(database)


def job_run(database: Database, interruption: Interruption | None = None) -> JobRun:
    with database.write() as session:
        job, lease = leases.claim(session, only_job(database), owner="step", take_over=True)
    options = OrchestratorOptions(artifacts=Path("unused"), limits=QUICK)
    return JobRun(
        database,
        job,
        lease,
        FleetCache(options, on_hosts=lambda hosts: None),
        options,
        unobserved,
        lambda: interruption,
    )


def in_state(state: str) -> Callable[[Database], int]:
    return lambda database: counted(database, JobRow.state == state, of=JobRow)


# A cancelled job is queued again.


def cancelled(database: Database, folder: Path) -> None:
    queued(database, folder)
    with database.write() as session:
        jobs.request_cancel(session, only_job(database))


def act_requeue(database: Database, folder: Path) -> None:
    requeue(database, only_job(database))


# A workload whose kernel is known is answered without measuring.


def kernel_known(database: Database, folder: Path) -> None:
    queued(database, folder)
    workload = parse_spec(SPEC)
    with database.write() as session:
        session.execute(update(JobRow).values(settings={"improve": False}))
        session.execute(update(TaskRow).values(workload_key=workload.key))
        new = replace(sample_kernel(session), workload=workload.key, target=host_target().key)
        kernels.promote(session, new)


def act_known(database: Database, folder: Path) -> None:
    with database.write() as session:
        job, lease = leases.claim(session, only_job(database), owner="step", take_over=True)
    assert unanswered(database, lease, job) == []


# Machines among the workers.


def machine_known(database: Database, folder: Path) -> None:
    with database.write() as session:
        targets.remember(session, host_target())


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
    now_s, spans = time.time(), timeline(database)
    spans.add([Span(worker="cpu:1", activity="time", number=0, started_s=now_s - 1, ended_s=now_s)])
    spans.flush()


def act_calibration(database: Database, folder: Path) -> None:
    at_s = datetime.now(UTC).timestamp()
    calibrated = Calibrated(
        lane="cpu:1",
        at_s=at_s,
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


# A model trained on what is known; a model file's kernels.


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


def model_job(database: Database, folder: Path) -> None:
    with database.write() as session:
        target = targets.remember(session, host_target())
        jobs.create(
            session, jobs.NewJob(workloads=(), target=target, threads=1, trials=4, kind=jobs.MODEL)
        )


def act_model(database: Database, folder: Path) -> None:
    lease = held(database, "step")
    with database.read() as session:
        there = jobs.get(session, lease.job_id).tasks
    if not there:
        parts = [ModelWorkload(workload=parse_spec(SPEC), calls=2)]
        models._added(database, lease, parts, ArtifactStore(folder / "artifacts"), b"{}")


def act_library(database: Database, folder: Path) -> None:
    digest = ArtifactStore(folder / "artifacts").put(b"archive")
    figures = Measurement(median_s=1.0, ci95_s=(1.0, 1.0), max_rel_error=0.0, kernels={})
    delivered = models.Delivered(
        library=digest,
        library_bytes=7,
        signature=None,
        description=digest,
        description_bytes=7,
        measurement=figures,
    )
    models._note_library(database, held(database, "step"), delivered)


# A run of a kernel on a caller's arrays; its library is missing, which the caller is told.


def run_waiting(database: Database, folder: Path) -> None:
    given = ArtifactStore(folder / "artifacts").put(b"arrays")
    workload = parse_spec(SPEC)
    with database.write() as session:
        key = workloads.remember(session, workload, to_document(workload))
        target = targets.remember(session, host_target())
        artifacts.remember(session, sha256=given, size_bytes=6, kind="input")
        kernel = kernels.promote(
            session, replace(sample_kernel(session), workload=key, target=target, artifact=LIBRARY)
        )
        runs.submit(session, of=kernel_run(kernel), input_artifact=given)


def act_run(database: Database, folder: Path) -> None:
    with database.write() as session:  # as if the lease of whoever died had run out
        session.execute(
            update(RunRow).values(lease_expires_at=session.now() - timedelta(seconds=1))
        )
    options = RunOptions(
        artifacts=folder / "artifacts", target=host_target().key, cores=(0,), owner="step"
    )
    RunServer(database, options).serve_one()


def ended_runs(database: Database) -> int:
    return counted(database, RunRow.state == runs.FAILED, of=RunRow)


def idempotent_long_ago(database: Database, folder: Path) -> None:
    then = replace(database, clock=ManualClock())
    queued(then, folder)
    with then.write() as session:
        job = jobs.get(session, only_job(then))
        new = jobs.NewJob(
            workloads=(job.tasks[0].workload,), target=job.target, threads=1, trials=1
        )
        jobs.create(session, new, idempotency=jobs.Idempotency(key="once", digest=""))


def act_prune(database: Database, folder: Path) -> None:
    prune(database, Keep(), ArtifactStore(folder / "artifacts"))


def act_import(database: Database, folder: Path) -> None:
    """A record of another tool that won its race becomes the kernel."""
    workload, target = parse_spec(SPEC), host_target()
    with database.read() as session:
        incumbent = kernels.find_promoted(session, workload.key, target.key, 1)
    if incumbent is not None:
        return
    record = ForeignRecord(number=1, workload="", trace="", claimed_s=None)
    record_raced = metaschedule.Replayed(
        record=record, workload=workload, object_code=b"code", schedule={}, library=b"library"
    )
    rounds = {record_raced.name: ((1e-3, 1.1e-3, 0.9e-3),) * 3}
    result = RaceResult(
        rounds=rounds,
        failed={},
        max_rel_error={name: 0.0 for name in rounds},
        artifacts={},
        decision=None,
    )
    settings = load_settings({"artifacts": folder / "artifacts", "threads": 1}).values
    metaschedule.promote(database, record_raced, result, None, target, settings)


def served(database: Database, folder: Path) -> None:
    many_kernels(database, 1)


def regressed(database: Database, folder: Path) -> None:
    overtaken(database)


STEPS: Mapping[str, Step] = {
    "requeue": Step(prepare=cancelled, act=act_requeue, effects=in_state(jobs.QUEUED)),
    "take-back": Step(
        prepare=running,
        act=lambda database, _: _taken_back(database),
        effects=in_state(jobs.QUEUED),
    ),
    "release": Step(
        prepare=running,
        act=lambda database, _: _stopped(database),
        effects=in_state(jobs.QUEUED),
    ),
    "known": Step(
        prepare=kernel_known,
        act=act_known,
        effects=lambda database: counted(database, EventRow.kind == "note", of=EventRow),
    ),
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
    "model": Step(
        prepare=model_job, act=act_model, effects=lambda database: counted(database, of=TaskRow)
    ),
    "library": Step(
        prepare=model_job,
        act=act_library,
        effects=lambda database: counted(database, of=ArtifactRow),
    ),
    "note": Step(
        prepare=model_job,
        act=lambda database, _: models._noted(
            database, only_job(database), "its kernels are ready"
        ),
        effects=lambda database: counted(database, EventRow.kind == "note", of=EventRow),
        again=2,
    ),
    "prune": Step(
        prepare=idempotent_long_ago,
        act=act_prune,
        effects=lambda database: 1 - counted(database, of=IdempotencyRow),
    ),
    "import": Step(
        prepare=machine_known,
        act=act_import,
        effects=lambda database: counted(database, of=KernelRow),
    ),
    "run-claim": Step(
        prepare=run_waiting,
        act=act_run,
        effects=lambda database: counted(database, RunRow.state != runs.QUEUED, of=RunRow),
    ),
    "reraces": Step(
        prepare=served,
        act=lambda database, _: queue_due(database, machine().key, timedelta(days=1)),
        effects=lambda database: counted(database, JobRow.kind == jobs.RERACE, of=JobRow),
    ),
    "race": Step(
        prepare=served,
        act=lambda database, _: _raced(database),
        effects=lambda database: counted(database, of=RaceRow),
        again=2,
    ),
    "announced": Step(
        prepare=regressed,
        act=lambda database, _: _announced(database),
        effects=lambda database: counted(
            database, RegressionRow.announced.is_not(None), of=RegressionRow
        ),
    ),
    "run-end": Step(prepare=run_waiting, act=act_run, effects=ended_runs),
}


def _announced(database: Database) -> None:
    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    announce(database, f"http://127.0.0.1:{server.server_port}")
    server.shutdown()


def _raced(database: Database) -> None:
    with database.read() as session:
        kernel = session.scalars(select(KernelRow.id)).one()
    ranked = Ranked(
        name=INCUMBENT, median_s=1e-3, ci95_s=(0.99e-3, 1.01e-3), max_rel_error=0.0, samples=9
    )
    outcome = RaceOutcome(finalists=(ranked,), winner=None, reason="")
    reracing.keep(database, kernel, outcome, None, 0)


def _taken_back(database: Database) -> None:
    with database.write() as session:  # the holder was a process of this machine
        session.execute(
            update(JobRow).where(JobRow.state == jobs.RUNNING).values(lease_owner="step")
        )
    take_back(database, owner="step")


def _stopped(database: Database) -> None:
    job_run(database, Interruption.RELEASE)._stopped()


if __name__ == "__main__":
    opened = open_database(sys.argv[2])
    STEPS[sys.argv[1]].act(opened, Path(sys.argv[3]))
    opened.close()
