"""Steps of kernels that are there: imported, run, raced again."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from sqlalchemy import select, update

from tests.integration.failpoints.step import SPEC, Step, counted, machine_known
from tests.support.dashboard_samples import machine
from tests.support.database_samples import LIBRARY, kernel_run, sample_kernel
from tests.support.kernel_samples import many_kernels
from tests.support.overtaken import overtaken
from tests.support.targets import host_target
from tuner.app.races import metaschedule
from tuner.app.service.reraces import announce, queue_due
from tuner.db import artifacts, jobs, kernels, promotions, runs, targets, workloads
from tuner.db.engine import Database
from tuner.db.tables import JobRow, KernelRow, RaceRow, RegressionRow, RunRow
from tuner.export.artifacts import ArtifactStore
from tuner.lowering.importers.records import ForeignRecord
from tuner.measure.race import RaceResult
from tuner.settings import load_settings
from tuner.workers.fleet.messages import RaceOutcome, Ranked
from tuner.workers.jobs import reracing
from tuner.workers.jobs.contest import INCUMBENT
from tuner.workers.jobs.runs import RunOptions, RunServer
from tuner.workload.spec import parse_spec, to_document

# A run of a kernel on a caller's arrays; its library is missing, which the caller is told.


def run_waiting(database: Database, folder: Path) -> None:
    given = ArtifactStore(folder / "artifacts").put(b"arrays")
    workload = parse_spec(SPEC)
    with database.write() as session:
        key = workloads.remember(session, workload, to_document(workload))
        target = targets.remember(session, host_target())
        artifacts.remember(session, sha256=given, size_bytes=6, kind="input")
        kernel = promotions.promote(
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


# A record of another tool that won its race becomes the kernel.


def act_import(database: Database, folder: Path) -> None:
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


# A kernel that is served is raced again, and one that lost is told of.


def served(database: Database, folder: Path) -> None:
    many_kernels(database, 1)


def regressed(database: Database, folder: Path) -> None:
    overtaken(database)


def act_announce(database: Database, folder: Path) -> None:
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


def act_race(database: Database, folder: Path) -> None:
    with database.read() as session:
        kernel = session.scalars(select(KernelRow.id)).one()
    ranked = Ranked(
        name=INCUMBENT, median_s=1e-3, ci95_s=(0.99e-3, 1.01e-3), max_rel_error=0.0, samples=9
    )
    outcome = RaceOutcome(finalists=(ranked,), winner=None, reason="")
    reracing.keep(database, kernel, outcome, None, 0, lambda session, raced: None)


KERNEL_STEPS: Mapping[str, Step] = {
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
    "run-end": Step(prepare=run_waiting, act=act_run, effects=ended_runs),
    "reraces": Step(
        prepare=served,
        act=lambda database, _: queue_due(database, machine().key, timedelta(days=1)),
        effects=lambda database: counted(database, JobRow.kind == jobs.RERACE, of=JobRow),
    ),
    "race": Step(
        prepare=served,
        act=act_race,
        effects=lambda database: counted(database, of=RaceRow),
        again=2,
    ),
    "announced": Step(
        prepare=regressed,
        act=act_announce,
        effects=lambda database: counted(
            database, RegressionRow.announced.is_not(None), of=RegressionRow
        ),
    ),
}
