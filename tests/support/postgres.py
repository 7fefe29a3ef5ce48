"""A throwaway PostgreSQL server for tests, as a pytest plugin: Debian's programs, a
cluster in a temporary folder, loopback only.

Without its programs the tests that need it are skipped, saying so; with
TUNER_REQUIRE_POSTGRES=1 they fail instead.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psycopg
import pytest

ACCOUNT = "postgres"  # the server refuses to run as root
TIMEOUT_S = 90  # a server that starts beside other tests may take a while


@dataclass(kw_only=True, eq=False)
class PostgresServer:
    """A running server; each database made on it is empty."""

    programs: Path
    folder: Path
    port: int
    _numbers: Iterator[int] = field(default_factory=count)

    def url(self, database: str) -> str:
        return f"postgresql://{ACCOUNT}@127.0.0.1:{self.port}/{database}"

    def new_database(self, template: str = "template1") -> str:
        """The URL of a new database: a copy of the template, empty where none is named."""
        name = f"tuner_{next(self._numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'.encode())
        return self.url(name)

    def start(self) -> None:
        # Safe settings stay as they are, only the sockets and the connections are ours.
        options = (
            f"-c listen_addresses=127.0.0.1 -c port={self.port} -c "
            f"unix_socket_directories={self.folder} -c max_connections=100"
        )
        self._run(
            "pg_ctl",
            "-D",
            str(self.folder / "data"),
            "-l",
            str(self.folder / "log"),
            "-w",
            "-t",
            "60",
            "-o",
            options,
            "start",
        )

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", mode, "-w", "-t", "60", "stop")

    def make(self) -> None:
        self._run(
            "initdb",
            "-D",
            str(self.folder / "data"),
            "-U",
            ACCOUNT,
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
            "--locale=C",
        )

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), *arguments]
        if os.geteuid() == 0:
            command = ["runuser", "-u", ACCOUNT, "--", *command]
        done = subprocess.run(
            command,
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd="/",
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed: {done.stdout}{done.stderr}")


def missing() -> str | None:
    """Why there can be no server here; None where there can."""
    if _programs() is None:
        return "no PostgreSQL server: install the package `postgresql`"
    if os.geteuid() == 0 and (shutil.which("runuser") is None or not _has_account()):
        return (
            f"PostgreSQL refuses to run as root: `runuser` and an account named {ACCOUNT} "
            f"are needed"
        )
    return None


def _programs() -> Path | None:
    program = shutil.which("pg_ctl")
    if program is not None:
        return Path(program).resolve().parent
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda file: float(file.parts[-3])
    )
    return versions[-1].parent if versions else None


def _has_account() -> bool:
    return any(entry.pw_name == ACCOUNT for entry in pwd.getpwall())


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server that lives as long as the test session."""
    reason, programs = missing(), _programs()
    if reason is not None or programs is None:
        if os.environ.get("TUNER_REQUIRE_POSTGRES") == "1":
            pytest.fail(f"TUNER_REQUIRE_POSTGRES=1, but {reason}")
        pytest.skip(str(reason))
    # Not pytest's own temporary folder: the server's account must be able to enter it.
    folder = Path(tempfile.mkdtemp(prefix="tuner-postgres-"))
    if os.geteuid() == 0:
        shutil.chown(folder, ACCOUNT)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    server = PostgresServer(programs=programs, folder=folder, port=port)
    try:
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """The URL of an empty database on the throwaway server."""
    return postgres_server.new_database()
