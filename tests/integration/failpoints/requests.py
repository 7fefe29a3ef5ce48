"""Requests whose answers are lost when the service is killed beside their commit: how
each is prepared, sent and judged."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from tests.integration.failpoints.job_steps import cancelled
from tests.integration.failpoints.machine_steps import PLAN
from tests.integration.failpoints.step import counted, in_state, only_job, queued
from tests.support.database_samples import sample_kernel, sample_target
from tests.support.fleet_job import queue_job
from tests.support.targets import host_target
from tuner.db import entries, jobs, kernels, promotions, proposals, targets, workloads
from tuner.db.engine import Database, Session
from tuner.db.tables import ApiKeyRow, JobRow, KernelRow, RunRow
from tuner.search.strategies import EXTERNAL
from tuner.spaces.by_target import space_of
from tuner.workers.jobs.timeline import join
from tuner.workload.spec import parse_spec, to_document

SPEC = "matmul:M=16,N=8,K=4"
STORE = "helion"


@dataclass(frozen=True, kw_only=True)
class Answered:
    status: int
    effects: int  # how often the request took effect in all


@dataclass(frozen=True, kw_only=True)
class Request:
    prepare: Callable[
        [Database, Path], tuple[str, dict[str, Any]]
    ]  # the address, and what httpx is given with it
    effects: Callable[[Database], int]
    first: Answered  # when it is sent again after it had no effect
    again: Answered  # when it is sent again after it had one
    method: str = "POST"


def cancelling(database: Database, folder: Path) -> tuple[str, dict[str, Any]]:
    queued(database, folder)
    return f"/v1/jobs/{only_job(database)}/cancel", {}


def resuming(database: Database, folder: Path) -> tuple[str, dict[str, Any]]:
    cancelled(database, folder)
    return f"/v1/jobs/{only_job(database)}/resume", {}


def promoted(session: Session, previous: str | None = None) -> str:
    workload = parse_spec(SPEC)
    key = workloads.remember(session, workload, to_document(workload))
    return promotions.promote(
        session, replace(sample_kernel(session, previous=previous), workload=key)
    ).id


def rolling_back(database: Database, folder: Path) -> tuple[str, dict[str, Any]]:
    with database.write() as session:
        newer = promoted(session, promoted(session))
    return f"/v1/kernels/{newer}/rollback", {}


def promoting(database: Database, folder: Path) -> tuple[str, dict[str, Any]]:
    with database.write() as session:
        champion = promoted(session)
        workload = kernels.get(session, champion).workload
        new = replace(sample_kernel(session, previous=champion), workload=workload)
        canary = promotions.promote(session, new, canary=True).id
    return f"/v1/kernels/{canary}/promote", {}


def preparing(database: Database, folder: Path) -> tuple[str, dict[str, Any]]:
    with database.write() as session:
        targets.remember(session, sample_target())
    workload = {"op": "matmul", "params": {"M": 16, "N": 8, "K": 4}}
    return "/v1/lookup", {"json": {"workload": workload}}


def running(database: Database, folder: Path) -> tuple[str, dict[str, Any]]:
    with database.write() as session:
        kernel = promoted(session)
    # A machine of the kernel's target, whose last sign of life is recent throughout the test.
    later = replace(database, clock=lambda: datetime.now(UTC) + timedelta(hours=1))
    join(later, sample_target(), PLAN)
    buffer = io.BytesIO()
    np.savez(
        buffer, allow_pickle=False, A=np.ones((16, 4), np.float32), B=np.ones((4, 8), np.float32)
    )
    return f"/v1/kernels/{kernel}/run", {
        "content": buffer.getvalue(),
        "headers": {"Content-Type": "application/x-npz"},
    }


def putting(database: Database, folder: Path) -> tuple[str, dict[str, Any]]:
    with database.write() as session:
        entries.put(session, store=STORE, key="key", content="old")
    return f"/v1/stores/{STORE}/key", {"json": {"content": "new"}}


def proposing(database: Database, folder: Path) -> tuple[str, dict[str, Any]]:
    job_id = queue_job(database, [SPEC], trials=4, strategy=EXTERNAL)
    sketch = space_of(parse_spec(SPEC), host_target(), 1).space.combinations[0].name
    return f"/v1/jobs/{job_id}/proposals", {"json": {"first": 0, "configs": [{"sketch": sketch}]}}


def replaced(database: Database) -> int:
    with database.read() as session:
        (entry,) = entries.list_page(session, STORE).items
    return int(entry.content == "new")


def proposed(database: Database) -> int:
    with database.read() as session:
        return len(proposals.read(session, only_job(database), 0).configs)


def rolled_back(database: Database) -> int:
    return counted(database, KernelRow.state == kernels.ROLLED_BACK, of=KernelRow)


DONE = Answered(status=200, effects=1)
REQUESTS: Mapping[str, Request] = {
    "cancel": Request(prepare=cancelling, effects=in_state(jobs.CANCELLED), first=DONE, again=DONE),
    "resume": Request(prepare=resuming, effects=in_state(jobs.QUEUED), first=DONE, again=DONE),
    "rollback": Request(
        prepare=rolling_back, effects=rolled_back, first=DONE, again=Answered(status=409, effects=1)
    ),
    "promote": Request(
        prepare=promoting,
        effects=lambda database: counted(
            database, KernelRow.state == kernels.SUPERSEDED, of=KernelRow
        ),
        first=DONE,
        again=Answered(status=409, effects=1),
    ),
    "prepare": Request(
        prepare=preparing,
        effects=lambda database: counted(database, JobRow.kind == jobs.PREPARE, of=JobRow),
        first=DONE,
        again=DONE,
    ),
    # Nobody computes here: the service says where the outputs will be. Without an
    # idempotency key, asking twice is two runs.
    "run-submit": Request(
        prepare=running,
        effects=lambda database: counted(database, of=RunRow),
        first=Answered(status=202, effects=1),
        again=Answered(status=202, effects=2),
    ),
    "entry": Request(method="PUT", prepare=putting, effects=replaced, first=DONE, again=DONE),
    "proposals": Request(prepare=proposing, effects=proposed, first=DONE, again=DONE),
    # Whatever a key is used for: the use is noted before the request is looked at.
    "key-used": Request(
        method="GET",
        prepare=lambda database, _: ("/v1/jobs", {}),
        effects=lambda database: counted(
            database, ApiKeyRow.last_used_at.is_not(None), of=ApiKeyRow
        ),
        first=DONE,
        again=DONE,
    ),
}
