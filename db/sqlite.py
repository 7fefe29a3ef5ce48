"""SQLite as the embedded database: the library and the settings it needs.

Without these settings it loses commits or deadlocks.

- `synchronous=FULL`: an acknowledged commit survives a power cut.
- WAL only on a library free of the WAL-reset bug, which can lose commits
  (https://sqlite.org/wal.html#walresetbug).
- Transactions begin when we say so: readers with BEGIN, writers with BEGIN IMMEDIATE,
  so that a writer waits at its start and never fails half-way because another one got
  in between.
"""

from __future__ import annotations

import sqlite3
from types import ModuleType
from typing import Any

from sqlalchemy import Connection, Engine, event

from tuner.errors import DatabaseError

try:
    from pysqlite3 import dbapi2 as _bundled
# A platform without the wheel uses the system's library, with the DELETE journal if that
# library has the bug.
except ImportError:
    _bundled = None

# Of each connection. With the library's default of 2 MiB, a long list reads the same
# pages repeatedly.
CACHE_KIB = 16_384
MODE = "tuner_mode"  # execution option: what a connection's transactions are for; left out, READING
# a glance is one SELECT outside any transaction
READING, WRITING, GLANCING = "reading", "writing", "glancing"


def library() -> ModuleType:
    """The SQLite module in use: the bundled one if installed, else the standard library's."""
    return sqlite3 if _bundled is None else _bundled


def wal_is_safe(version: tuple[int, int, int]) -> bool:
    """Whether this SQLite version is free of the WAL-reset bug.

    Versions 3.7.0 to 3.51.2 have it; 3.51.3, 3.50.7 and 3.44.6 fix it.
    """
    if version < (3, 7, 0):
        return False  # knows no WAL
    fixed = {(3, 44): (3, 44, 6), (3, 50): (3, 50, 7)}.get(version[:2], (3, 51, 3))
    return version >= fixed


def journal_mode() -> str:
    return "wal" if wal_is_safe(library().sqlite_version_info) else "delete"


def configure(engine: Engine, *, busy_timeout_s: float) -> None:
    """Applies the settings above to every connection of `engine`."""
    mode = journal_mode()

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the module itself begins nothing
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={int(busy_timeout_s * 1000)}")
        got = cursor.execute(f"PRAGMA journal_mode={mode}").fetchone()[0]
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        cursor.close()
        if got != mode:
            raise DatabaseError(
                f"{engine.url.database}: SQLite keeps journal mode {got}, needed is {mode}; "
                f"close other programs using it"
            )

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        mode = connection.get_execution_options().get(MODE, READING)
        if mode == GLANCING:
            return
        # By the driver itself, which takes a fraction of SQLAlchemy's time; BEGIN may
        # fail, and SQLAlchemy says how.
        cursor = connection.connection.cursor()
        cursor.execute(f"PRAGMA query_only={'OFF' if mode == WRITING else 'ON'}")
        cursor.close()
        connection.exec_driver_sql("BEGIN IMMEDIATE" if mode == WRITING else "BEGIN")
