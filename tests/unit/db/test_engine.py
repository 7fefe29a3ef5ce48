"""Opening a database: settings that keep commits, and one clear error for whatever is
wrong with it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

from tests.support.database_samples import add_job
from tests.support.postgres import PostgresServer
from tuner.db import jobs, schema, sqlite
from tuner.db.engine import Database, open_database
from tuner.db.errors import DatabaseBusy, DatabaseFull, DatabaseUnreachable, SchemaMismatch
from tuner.errors import DatabaseError, TunerError


def opened(tmp_path: Path, **options: object) -> Database:
    return open_database(f"sqlite:///{tmp_path}/tuner.sqlite", **options)  # type: ignore[arg-type] # keywords pass through


def scalar(database: Database, statement: str) -> object:
    with database.read() as session:
        return session.scalar(text(statement))


def test_settings_that_keep_commits(tmp_path: Path) -> None:
    database = opened(tmp_path, busy_timeout_s=7)
    assert scalar(database, "PRAGMA synchronous") == 2
    assert scalar(database, "PRAGMA foreign_keys") == 1
    assert scalar(database, "PRAGMA busy_timeout") == 7000
    assert scalar(database, "PRAGMA journal_mode") == sqlite.journal_mode()
    database.close()


def test_every_transaction_has_them(tmp_path: Path) -> None:
    """Reading, writing and glancing: each connection of the pool, whichever opened it."""
    database = opened(tmp_path)
    with database.read() as first, database.write() as second, database.read() as third:
        for session in (first, second, third):
            assert session.scalar(text("PRAGMA synchronous")) == 2
            assert session.scalar(text("PRAGMA journal_mode")) == sqlite.journal_mode()
    row = database.glance(text("SELECT * FROM pragma_synchronous"), {})
    assert row is not None and row[0] == 2
    database.close()


@pytest.mark.postgres
def test_a_server_that_acknowledges_early_is_overruled(postgres_url: str) -> None:
    name = postgres_url.rpartition("/")[2]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for setting in ("fsync", "full_page_writes"):
            assert connection.execute(f"SHOW {setting}".encode()).fetchone() == ("on",)
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit TO off".encode())
    database = open_database(postgres_url)
    assert scalar(database, "SHOW synchronous_commit") == "on"
    with database.write() as session:
        assert session.scalar(text("SHOW synchronous_commit")) == "on"
    assert schema.check(database.engine) == []
    database.close()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit TO local".encode())
    stronger = open_database(postgres_url)
    assert scalar(stronger, "SHOW synchronous_commit") == "local", (
        "durable on this server: left as the operator chose"
    )
    stronger.close()


@pytest.mark.postgres
def test_a_server_that_can_lose_what_it_wrote_is_named(postgres_server: PostgresServer) -> None:
    url = postgres_server.new_database()
    database = open_database(url)
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET full_page_writes TO off")
        connection.execute("SELECT pg_reload_conf()")
    try:
        deadline = time.monotonic() + 20
        while scalar(database, "SHOW full_page_writes") == "on":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (problem,) = schema.check(database.engine)
        assert "full_page_writes = off" in problem and "set it to on" in problem
    finally:
        with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM RESET full_page_writes")
            connection.execute("SELECT pg_reload_conf()")
        database.close()


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        ((3, 40, 1), False), ((3, 44, 5), False), ((3, 44, 6), True), ((3, 45, 0), False), ((3, 50,
        6), False),
        ((3, 50, 7), True), ((3, 51, 2), False), ((3, 51, 3), True), ((3, 52, 0), True), ((3, 6,
        9), False), ((4, 0, 0), True),
    ],
)  # fmt: skip
def test_wal_only_without_its_bug(version: tuple[int, int, int], safe: bool) -> None:
    assert sqlite.wal_is_safe(version) is safe


def test_missing_folders_are_made_and_paths_are_accepted(tmp_path: Path) -> None:
    database = open_database(tmp_path / "a" / "b.sqlite")
    database.ping()
    database.close()
    assert (tmp_path / "a" / "b.sqlite").is_file()
    with pytest.raises(DatabaseError, match="no such file"):
        open_database(tmp_path / "none.sqlite", create=False)
    assert not (tmp_path / "none.sqlite").exists()


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "mysql://host/x",
        "sqlite+aiosqlite:///x",
        "://",
        "no-such-dialect://x",
        "postgresql://host:port/x",
        "sqlite:///",
        "sqlite:///a\0b",
        "~nobody-here/x.sqlite",
    ],
)
def test_unsupported_addresses(url: str) -> None:
    with pytest.raises(DatabaseError, match=r"sqlite:///"):
        open_database(url)


def test_a_path_may_have_what_means_something_in_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a?b=c#d%20e@f" / "t.sqlite"
    open_database(f"sqlite:///{file}").close()
    assert file.is_file()
    monkeypatch.setenv("HOME", str(tmp_path))
    open_database("sqlite:///~/home.sqlite").close()
    assert (tmp_path / "home.sqlite").is_file()


@pytest.mark.parametrize("host", ["x" * 70, "a..b", "\u202e"])
def test_a_name_that_no_server_can_have(host: str) -> None:
    with pytest.raises(DatabaseUnreachable, match="no server has such a name"):
        open_database(f"postgresql://{host}/x")


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="File name too long"):
        open_database(f"sqlite:///{tmp_path}/{'x' * 300}")


def test_unwritable_folder() -> None:
    with pytest.raises(DatabaseError, match=r"/proc/nowhere.*--db"):
        open_database("sqlite:////proc/nowhere/tuner.sqlite")


def test_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "tuner.sqlite").write_bytes(
        b"not a database at all, but long enough to look at" * 50
    )
    with pytest.raises(DatabaseError, match="not a database"):
        opened(tmp_path)


def test_folder_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "tuner.sqlite").mkdir()
    with pytest.raises(DatabaseError, match="cannot be opened"):
        opened(tmp_path)


READ_ONLY = """
import os, sys
from db.engine import open_database
from tests.support.database_samples import add_job
from tests.support.postgres import PostgresServer
from tuner.errors import DatabaseError
os.setuid(65534)
try:
    add_job(open_database(sys.argv[1]))
except DatabaseError as error:
    print(error)
"""


@pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, to give up its right to write everywhere"
)
def test_read_only_file() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        Path(folder).chmod(0o755)
        file = Path(folder) / "tuner.sqlite"
        open_database(file).close()
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(file)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{file}: the file or its folder is not writable" in done.stdout


def test_tables_of_another_program(tmp_path: Path) -> None:
    connection = sqlite.library().connect(str(tmp_path / "tuner.sqlite"))
    connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.commit()
    connection.close()
    with pytest.raises(SchemaMismatch, match=r"another program \(recipes\)"):
        opened(tmp_path)


def test_newer_and_older_schemas_are_refused_by_name(tmp_path: Path) -> None:
    database = opened(tmp_path)
    for version, message in (
        ("9000", rf"has schema 9000, newer than {schema.head()}"),
        ("0000", rf"has schema 0000, older than {schema.head()}.*db upgrade"),
    ):
        with database.write() as session:
            session.execute(
                text("UPDATE alembic_version SET version_num = :version"), {"version": version}
            )
        with pytest.raises(SchemaMismatch, match=message):
            opened(tmp_path)
        other = opened(tmp_path, check_schema=False)
        assert schema.check(other.engine) != []
        if version == "9000":
            with pytest.raises(SchemaMismatch, match="newer"):
                schema.upgrade(other.engine)
        other.close()
    database.close()


def test_locked_database_is_busy_and_then_fine(tmp_path: Path) -> None:
    holder, other = opened(tmp_path), opened(tmp_path, busy_timeout_s=0.1)
    add_job(holder)
    with holder.write():
        with (
            pytest.raises(DatabaseBusy, match="nothing was written") as caught,
            other.write() as session,
        ):
            jobs.list_page(session)
        assert caught.value.retryable
        with other.read() as session:
            assert len(jobs.list_page(session).items) == 1
    add_job(other)
    holder.close()
    other.close()


def test_full_disk_loses_nothing_recorded(tmp_path: Path) -> None:
    database = opened(tmp_path)
    add_job(database)
    with pytest.raises(DatabaseFull, match="no space left"), database.write() as session:
        pages = session.scalar(text("PRAGMA page_count"))
        session.execute(text(f"PRAGMA max_page_count={pages}"))
        for _ in range(100):
            session.execute(
                text(
                    "INSERT INTO artifacts VALUES (hex(randomblob(32)), 1, "
                    "hex(randomblob(4000)), NULL, '2026-01-01')"
                )
            )
    with database.read() as session:
        assert len(jobs.list_page(session).items) == 1
    assert schema.check(database.engine) == []
    database.close()


def test_unreachable_server_is_named_without_its_password() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    named = rf"postgresql\+psycopg://me:\*\*\*@127.0.0.1:{port}/tuner.*check that the server runs"
    with pytest.raises(DatabaseUnreachable, match=named) as caught:
        open_database(f"postgresql://me:hunter2@127.0.0.1:{port}/tuner")
    assert "hunter2" not in str(caught.value)


@pytest.mark.postgres
def test_missing_database_on_a_server(postgres_url: str) -> None:
    with pytest.raises(DatabaseUnreachable, match="does not exist"):
        open_database(postgres_url + "_missing")


def test_errors_have_codes() -> None:
    assert issubclass(DatabaseBusy, TunerError) and DatabaseBusy.code != DatabaseFull.code


def test_opening_needs_no_compiler_and_no_cluster() -> None:
    modules = (
        "db.backup, db.cost_models, db.engine, db.kernels, db.keys, db.lanes, db.runs, "
        "db.trial_pages, db.workers"
    )
    code = (
        f"import sys, {modules}; print([name for name in ('tvm', 'ray', 'xgboost', "
        f"'fastapi') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
