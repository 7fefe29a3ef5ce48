"""The version of the schema: checks and upgrades it with Alembic.

Revisions are numbered files `NNNN_what.py` in migrations/versions; the number is the version.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, inspect, text

from tuner.db import postgres
from tuner.db.errors import SchemaMismatch
from tuner.db.sqlite import MODE, WRITING

MIGRATIONS = Path(__file__).parent / "migrations"
# any number, the same in every version: PostgreSQL's advisory lock held while upgrading
UPGRADE_LOCK = 7_316_529_044


def head() -> str:
    """The version this program needs."""
    return max(file.name.split("_")[0] for file in (MIGRATIONS / "versions").glob("[0-9]*_*.py"))


def current(engine: Engine) -> str | None:
    """The version the database has; None when it has no tables.

    Raises SchemaMismatch when the tables belong to another program.
    """
    with engine.connect() as connection:
        return _current(connection)


def _current(connection: Connection) -> str | None:
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    version = (
        connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        if "alembic_version" in tables
        else None
    )
    if version is None and "alembic_version" in tables and tables == ["alembic_version"]:
        return None  # taken down to nothing
    if version is None or not {"workloads", "jobs", "trials"} <= set(tables):
        where = connection.engine.url.render_as_string(hide_password=True)
        raise SchemaMismatch(
            f"{where}: holds tables of another program ({', '.join(tables[:3])}); name another "
            f"database with --db"
        )
    return str(version)


def require_current(engine: Engine) -> None:
    """Raises SchemaMismatch unless the database has exactly this program's version."""
    version = current(engine)
    needed = head()
    where = engine.url.render_as_string(hide_password=True)
    if version is None:
        raise SchemaMismatch(
            f"{where}: has no tables yet, this program needs schema {needed}; run `tuner "
            f"db upgrade`"
        )
    if version > needed:
        raise SchemaMismatch(
            f"{where}: has schema {version}, newer than {needed} of this program; upgrade "
            f"the program"
        )
    if version < needed:
        raise SchemaMismatch(
            f"{where}: has schema {version}, older than {needed} of this program; back it up, "
            f"then run `tuner db upgrade`"
        )


def create_if_empty(engine: Engine) -> bool:
    """Creates the current schema in an empty database; returns whether it was empty.

    Several processes may call it at once.
    """
    if current(engine) is not None:
        return False
    with engine.execution_options(**{MODE: WRITING}).begin() as connection:
        _lock(connection)
        if _current(connection) is not None:
            return False
        _move(connection, "head")
    return True


def upgrade(engine: Engine, revision: str = "head") -> tuple[str | None, str | None]:
    """Upgrades the database to this program's schema in one transaction.

    Returns the versions before and after.
    Raises SchemaMismatch when the database is newer than this program.
    """
    with engine.execution_options(**{MODE: WRITING}).begin() as connection:
        _lock(connection)
        before = _current(connection)
        if before is not None and before > head():
            where = engine.url.render_as_string(hide_password=True)
            raise SchemaMismatch(
                f"{where}: has schema {before}, newer than {head()} of this program; upgrade "
                f"the program"
            )
        _move(connection, revision)
        return before, _current(connection)


def downgrade(engine: Engine, revision: str) -> None:
    """Takes the database back to `revision` ("base" for none).

    Data that the older schema cannot hold is lost.
    """
    with engine.execution_options(**{MODE: WRITING}).begin() as connection:
        _lock(connection)
        command.downgrade(configuration(connection), revision)


def check(engine: Engine) -> list[str]:
    """Everything wrong with the database, in words; empty when it is sound."""
    problems: list[str] = []
    try:
        require_current(engine)
    except SchemaMismatch as error:
        problems.append(str(error))
    return problems + integrity(engine)


def integrity(engine: Engine) -> list[str]:
    """Damage that SQLite finds in its file; for PostgreSQL, settings that endanger its data."""
    if engine.dialect.name != "sqlite":
        return postgres.weaknesses(engine)
    with engine.connect() as connection:
        problems = [
            str(row[0])
            for row in connection.exec_driver_sql("PRAGMA integrity_check")
            if row[0] != "ok"
        ]
        broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    return problems + [
        f"row {row[1]} of {row[0]} refers to a missing row of {row[2]}" for row in broken
    ]


def configuration(connection: Connection | None = None) -> Config:
    """Alembic's configuration, working on `connection`."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _move(connection: Connection, revision: str) -> None:
    command.upgrade(configuration(connection), revision)


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": UPGRADE_LOCK})
