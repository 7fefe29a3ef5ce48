"""What one step is, and the jobs that steps begin from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, select

from tests.support.fleet_job import queue_job
from tests.support.targets import host_target
from tuner.db import leases, targets
from tuner.db.engine import Database
from tuner.db.tables import JobRow

SPEC = "matmul:M=64,N=64,K=64"


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


def in_state(state: str) -> Callable[[Database], int]:
    return lambda database: counted(database, JobRow.state == state, of=JobRow)


def machine_known(database: Database, folder: Path) -> None:
    with database.write() as session:
        targets.remember(session, host_target())
