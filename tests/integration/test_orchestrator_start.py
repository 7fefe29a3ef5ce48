"""An orchestrator whose database is away when it starts: it waits, says so once, and
serves when the database is back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.postgres import PostgresServer
from tests.support.targets import host_target
from tuner.db import workers
from tuner.db.engine import open_database
from tuner.workers.jobs.orchestrator import Orchestrator, OrchestratorOptions
from tuner.workers.jobs.timeline import worker_id

pytestmark = pytest.mark.timeout(170)


def within(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def waits_and_serves(
    url: str | Path, tmp_path: Path, back: Callable[[], object], away: Callable[[], object]
) -> list[str]:
    """What it said while the database was away and after it was back."""
    database = open_database(url, busy_timeout_s=0.2)
    stop, said, target = threading.Event(), list[str](), host_target()
    service = Orchestrator(database, target, OrchestratorOptions(artifacts=tmp_path / "artifacts"))
    thread = threading.Thread(
        target=service.serve, args=(stop,), kwargs={"on_error": said.append}, daemon=True
    )

    def joined() -> bool:
        with database.read() as session:
            return any(worker.id == worker_id(target) for worker in workers.list_all(session))

    away()
    try:
        thread.start()
        assert within(lambda: bool(said))
        time.sleep(2.5)  # it tries again meanwhile
        assert thread.is_alive()
    finally:
        back()
    try:
        assert within(joined)
        assert thread.is_alive()
    finally:
        stop.set()
        thread.join(timeout=30)
        database.close()
    assert not thread.is_alive()
    return said


@pytest.mark.slow
def test_a_database_that_is_locked_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "tuner.db"
    holder, held = open_database(path), ExitStack()
    said = waits_and_serves(
        path, tmp_path, away=lambda: held.enter_context(holder.write()), back=held.close
    )
    holder.close()
    assert len(said) == 1 and said[0].startswith("the orchestrator waits for the database: ")


@pytest.mark.postgres
@pytest.mark.slow
def test_a_server_that_is_down_is_waited_for(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    said = waits_and_serves(
        postgres_server.new_database(),
        tmp_path,
        away=lambda: postgres_server.stop("fast"),
        back=postgres_server.start,
    )
    assert said[0].startswith("the orchestrator waits for the database: ") and len(
        set(said)
    ) == len(said)
