"""Databases with the current schema and nothing in them, copied from one made once."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from tests.support.postgres import PostgresServer
from tuner.db.engine import Clock, Database, open_database


def new_database(place: str | Path, *, clock: Clock | None = None) -> Database:
    """A new SQLite database at a path or its URL, opened; folders are made for it."""
    file = Path(str(place).removeprefix("sqlite:///"))
    file.parent.mkdir(parents=True, exist_ok=True)
    return open_database(sqlite_database(file), clock=clock)


def sqlite_database(file: Path) -> str:
    """The URL of a new SQLite database."""
    file.write_bytes(_empty_file())
    return f"sqlite:///{file}"


@cache
def _empty_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "empty.sqlite"
        open_database(file).close()
        return file.read_bytes()


def postgres_database(server: PostgresServer) -> str:
    """The URL of a new database of the server."""
    return server.new_database(template=_template(server))


@cache
def _template(server: PostgresServer) -> str:
    """The name of a database that others are copied from."""
    url = server.new_database()
    open_database(url).close()
    return url.rpartition("/")[2]
