"""`tuner serve` with its orchestrator and workers, to be killed and started again.

It has a home of its own and keeps its port.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil
from sqlalchemy import func, select

from benchmarks.service.process import ROOT
from tuner.db.engine import Database
from tuner.db.tables import TaskRow
from tuner.errors import DatabaseError

POLL_S = 0.05


class Running:
    """One start of the service."""

    def __init__(self, url: str, database: Database, process: subprocess.Popen[bytes]) -> None:
        self._url, self._database, self._process = url, database, process
        self._started = time.monotonic()
        while (
            trials := self._count()
        ) is None:  # what was killed may have left the file to be recovered
            time.sleep(POLL_S)
        self._trials = trials
        self.left_behind: list[psutil.Process] = []  # children that were not killed with it

    def wait_until_ready(self, within_s: float) -> float:
        """The seconds from its start until it is ready. Raises TimeoutError."""
        while self._process.poll() is None and time.monotonic() - self._started < within_s:
            with suppress(httpx.TransportError):
                if (
                    httpx.get(self._url + "/v1/health/ready", timeout=5, verify=False).status_code
                    == 200
                ):
                    return time.monotonic() - self._started
            time.sleep(POLL_S)
        raise TimeoutError(f"the service was not ready within {within_s:g} s")

    def wait_until_measuring(self, within_s: float) -> float | None:
        """The seconds from the start until a trial was recorded.

        None where that took longer than `within_s`.
        """
        while time.monotonic() - self._started < within_s:
            if (self._count() or 0) > self._trials:
                return time.monotonic() - self._started
            time.sleep(POLL_S)
        return None

    def kill(self, *, everything: bool) -> None:
        """SIGKILL for the server, or for it and all it has started."""
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.send_signal(signal.SIGKILL)
        for child in children if everything else []:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        self._process.wait()
        self.left_behind = children

    def _count(self) -> int | None:
        """The number of trials recorded so far. None while the database cannot say."""
        with suppress(DatabaseError), self._database.read() as session:
            return int(
                session.scalars(select(func.coalesce(func.sum(TaskRow.trials_done), 0))).one()
            )
        return None


class WholeService:
    """Where it runs: folder, database, port."""

    def __init__(self, database: Database, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self._database, self._folder = database, folder
        self._left: list[psutil.Process] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @contextmanager
    def running(self) -> Iterator[Running]:
        """The service, started for the block, which kills it.

        Where the block raises, it is killed here.
        """
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("TUNER_")
        }
        environment |= {
            "XDG_DATA_HOME": str(self._folder / "data"),
            "XDG_CONFIG_HOME": str(self._folder / "config"),
        }
        environment |= {
            "PYTHONPATH": str(ROOT),
            "TUNER_DB": self._database.engine.url.render_as_string(hide_password=False),
        }
        command = [sys.executable, "-P", "-m", "tuner", "serve", "--port", str(self._port)]
        with (self._folder / "service.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        running = Running(self.url, self._database, process)
        try:
            yield running
        finally:
            if process.poll() is None:
                running.kill(everything=True)
            self._left = [child for child in self._left if child.is_running()] + running.left_behind

    def end(self) -> int:
        """Wait until all processes left behind by killed servers have ended.

        Gives how many had to be killed.
        """
        _, alive = psutil.wait_procs(self._left, timeout=30)
        for child in alive:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        return len(alive)
