"""Leases of killed processes of this machine end at once; those of living ones and of
other machines stay."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.database_samples import add_job
from tuner.app.jobs.abandoned import cancel, is_gone, take_back
from tuner.db import jobs, leases
from tuner.db.engine import open_database

HOST = socket.gethostname()


def ended() -> str:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(timeout=30)
    return f"{HOST}:{process.pid}"


def test_who_is_gone() -> None:
    assert is_gone(ended())
    assert not is_gone(f"{HOST}:{os.getpid()}") and not is_gone(f"{HOST}:1")
    assert not any(map(is_gone, ("elsewhere:1", HOST, "", None, f"{HOST}:x")))


def test_only_jobs_of_the_dead_are_taken_back(tmp_path: Path) -> None:
    database, here = open_database(tmp_path / "tuner.sqlite"), f"{HOST}:{os.getpid()}"
    names = {
        "dead": ended(),
        "own": here,
        "cancelling": ended(),
        "alive": f"{HOST}:{os.getppid()}",
        "elsewhere": "machine-b:1",
    }
    made = {name: add_job(database) for name in names}
    made["waiting"] = add_job(database)
    with database.write() as session:
        for name, owner in names.items():
            leases.claim(session, made[name], owner=owner)
        jobs.request_cancel(session, made["cancelling"])
    assert set(take_back(database, owner=here)) == {
        made[name] for name in ("dead", "own", "cancelling")
    }
    expected = {
        "dead": "queued",
        "own": "queued",
        "cancelling": "cancelled",
        "alive": "running",
        "elsewhere": "running",
    }
    with database.read() as session:
        assert {name: jobs.get(session, made[name]).state for name in names} == expected
        assert jobs.get(session, made["waiting"]).state == "queued"
    assert take_back(database, owner=here) == ()
    database.close()


def test_a_job_of_the_dead_is_cancelled_at_once(tmp_path: Path) -> None:
    database = open_database(tmp_path / "tuner.sqlite")
    dead, alive = add_job(database), add_job(database)
    with database.write() as session:
        leases.claim(session, dead, owner=ended())
        leases.claim(session, alive, owner=f"{HOST}:{os.getpid()}")
        assert cancel(session, dead).state == "cancelled"
        assert cancel(session, alive).state == "cancelling"
        assert jobs.resume(session, dead).state == "queued"
    database.close()
