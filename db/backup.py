"""Backs up and restores the database while others read and write.

Uses the online backup of SQLite, and pg_dump and pg_restore for PostgreSQL.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy.engine import URL

from tuner.db import schema, sqlite
from tuner.db.engine import Database, open_database, sqlite_file
from tuner.db.errors import DatabaseDamaged
from tuner.db.failures import translated
from tuner.errors import DatabaseError, UsageError

DUMP_TIMEOUT_S = 3600
WAIT_S = 30.0


def backup(database: Database, file: Path) -> Path:
    """Writes a copy of the database to the new `file`, completely or not at all.

    For SQLite the copy is a database file, for PostgreSQL an archive of pg_dump. Raises
    UsageError when the file exists, DatabaseError when it cannot be written or pg_dump
    is missing or fails.
    """
    if file.exists():
        raise UsageError(f"{file} exists; name a new file for the backup")
    partial = file.with_name(f".{file.name}.partial-{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with translated(database.engine.url):
            if database.engine.dialect.name == "sqlite":
                _copy(
                    sqlite.library().connect(str(database.engine.url.database), timeout=WAIT_S),
                    partial,
                )
                _settle(partial)
            else:
                _run(
                    database.engine.url,
                    "pg_dump",
                    "--format=custom",
                    "--no-owner",
                    f"--file={partial}",
                )
        _sync(partial)
        partial.rename(file)
    except (OSError, sqlite.library().Error) as error:
        raise DatabaseError(
            f"the backup {file} cannot be written: {error}; free space or name another file"
        ) from error
    finally:
        _drop(partial)
    return file


def restore(database: Database, file: Path) -> None:
    """Replaces the contents of the database by the backup, in one transaction.

    All other programs that use it must be stopped first.
    Raises UsageError when `file` is missing, DatabaseError when it is no sound backup
    of ours, or pg_restore is missing or fails.
    """
    if not file.is_file():
        raise UsageError(f"there is no backup {file}")
    if database.engine.dialect.name == "sqlite":
        _require_sound(file)
        target = Path(str(database.engine.url.database))
        database.close()
        try:
            with translated(database.engine.url):
                _copy(_reader(file), target)
        except sqlite.library().Error as error:
            raise DatabaseError(
                f"{database.url}: cannot be replaced by {file}: {error}; stop other programs "
                f"that use it"
            ) from error
    else:
        database.close()
        _run(
            database.engine.url,
            "pg_restore",
            "--clean",
            "--if-exists",
            "--no-owner",
            "--single-transaction",
            str(file),
        )


def restore_at(url: str, file: Path) -> str:
    """Restores the database at a URL, which is returned without its password.

    A damaged SQLite file is replaced as a whole.
    """
    try:
        database = open_database(url, check_schema=False)
    except DatabaseDamaged:
        if not file.is_file():
            raise UsageError(f"there is no backup {file}") from None
        _require_sound(file)
        return _put_in_place_of(sqlite_file(url), file)
    try:
        restore(database, file)
    finally:
        database.close()
    return database.url


def _put_in_place_of(target: Path, file: Path) -> str:
    """Replaces a file that SQLite cannot read, with its journals, by the backup."""
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    try:
        _copy(_reader(file), partial)
        _settle(partial)
        _sync(partial)
        for suffix in ("-wal", "-shm", "-journal"):
            target.with_name(target.name + suffix).unlink(missing_ok=True)
        partial.replace(target)
    except (OSError, sqlite.library().Error) as error:
        raise DatabaseError(
            f"{target}: cannot be replaced by {file}: {error}; free space or name another file"
        ) from error
    finally:
        _drop(partial)
    return f"sqlite:///{target}"


def _drop(partial: Path) -> None:
    with contextlib.suppress(OSError):  # of a place where nothing can be
        partial.unlink(missing_ok=True)


def _settle(file: Path) -> None:
    """Leaves one file that can be read from a read-only folder: no WAL beside it."""
    with contextlib.closing(sqlite.library().connect(str(file))) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")


def _require_sound(file: Path) -> None:
    try:
        with contextlib.closing(_reader(file)) as connection:
            version = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            problem = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    except sqlite.library().Error as error:
        raise DatabaseError(f"{file} is not a backup of this program: {error}") from error
    if version is None or version[0] > schema.head():
        has = (
            "no schema"
            if version is None
            else f"schema {version[0]}, newer than {schema.head()} of this program"
        )
        raise DatabaseError(f"{file} has {has}; restore another backup, or upgrade the program")
    if problem != "ok":
        raise DatabaseError(f"{file} is damaged: {problem}; restore another backup")


def _reader(file: Path) -> Any:
    """A connection to a file that nobody writes, which leaves nothing beside it."""
    return sqlite.library().connect(f"file:{quote(bytes(file.absolute()))}?immutable=1", uri=True)


def _copy(reader: Any, target: Path) -> None:
    """Copies page by page through the library, which waits for writers and is safe
    while others use either file."""
    with (
        contextlib.closing(reader),
        contextlib.closing(sqlite.library().connect(str(target), timeout=WAIT_S)) as writer,
    ):
        writer.execute("PRAGMA synchronous=FULL")
        reader.backup(writer)


def _run(url: URL, program: str, *arguments: str) -> None:
    if shutil.which(program) is None:
        raise DatabaseError(
            f"{program} is not on PATH; install PostgreSQL's client programs "
            f"(postgresql-client) and try again"
        )
    # The password travels in the environment: arguments are visible to every user of the machine.
    given = {
        "PGHOST": url.host,
        "PGPORT": url.port,
        "PGUSER": url.username,
        "PGPASSWORD": url.password,
    }
    environment = dict(os.environ) | {
        name: str(value) for name, value in given.items() if value is not None
    }
    command = [program, "--no-password", f"--dbname={url.database}", *arguments]
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DUMP_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        where = url.render_as_string(hide_password=True)
        raise DatabaseError(f"{where}: {program} failed: {done.stderr.strip()[-2000:]}")


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
