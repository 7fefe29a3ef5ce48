"""Opening the database and its transactions: the only place that commits.

`Database.read()` and `Database.write()` are the boundaries of requests and tasks.
Queries take their session and never commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from sqlalchemy import (
    CursorResult,
    Engine,
    Executable,
    Row,
    Table,
    create_engine,
    func,
    literal_column,
    orm,
    select,
)
from sqlalchemy import exc as sa_errors
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects import sqlite as sqlite_dialect
from sqlalchemy.engine import URL, make_url

from tuner.db import postgres, schema, sqlite
from tuner.db.failpoints import reach
from tuner.db.failures import refuse_odd_values, refuse_url, translated
from tuner.db.tables import Base
from tuner.db.values import to_json
from tuner.errors import DatabaseError

Clock = Callable[[], datetime]  # gives an aware datetime in UTC

SQLITE = "sqlite:///"
POOL_SIZE = 16
POOL_OVERFLOW = 32


class Session(orm.Session):
    """A transaction with its own, fixed time."""

    clock: Clock | None = None
    _now: datetime | None = None

    def now(self) -> datetime:
        """The time of this transaction, the same at every call.

        It is the injected clock's, else PostgreSQL's own, so that machines whose clocks
        differ agree about leases; on SQLite there is one machine and its clock is used.
        """
        if self._now is None:
            if self.clock is not None:
                self._now = self.clock()
            elif self.get_bind().dialect.name == "postgresql":
                self._now = self.scalars(select(func.clock_timestamp())).one()
            else:
                self._now = datetime.now(UTC)
        return self._now.astimezone(UTC)

    @property
    def on_postgresql(self) -> bool:
        return self.get_bind().dialect.name == "postgresql"

    def insert_new(self, table: type[Base], values: dict[str, Any]) -> bool:
        """Inserts a row unless its key exists; returns whether it was inserted.

        Concurrent transactions may do the same.
        """
        insert = postgresql.insert if self.on_postgresql else sqlite_dialect.insert
        statement = insert(cast("Table", table.__table__)).values(**values).on_conflict_do_nothing()
        return self.execute(statement.returning(literal_column("1"))).first() is not None

    def count_rows(self, statement: Executable) -> int:
        """Executes an INSERT, UPDATE or DELETE; returns the number of rows it touched."""
        result = self.execute(statement, execution_options={"synchronize_session": False})
        return cast("CursorResult[Any]", result).rowcount


@dataclass(frozen=True, kw_only=True)
class Database:
    """An open database with this program's schema.

    Threads may share it; a session belongs to one thread.
    """

    engine: Engine
    clock: Clock | None = None  # for tests; see Session.now

    @property
    def url(self) -> str:
        """The address for people, its password masked."""
        return self.engine.url.render_as_string(hide_password=True)

    @contextlib.contextmanager
    def read(self) -> Iterator[Session]:
        """A read-only transaction that sees one state of the database throughout.

        Writing in it fails.
        """
        with self._session(self._reading) as session:
            yield session

    def glance(self, statement: Executable, values: Mapping[str, object]) -> Row[Any] | None:
        """The first row of one SELECT outside any transaction.

        Sees what is committed now, at a third of the cost of `read`.
        """
        with translated(self.engine.url), self._glancing.connect() as connection:
            return connection.execute(statement, values).first()

    # Cached: creating an engine with its own options takes longer than a short query.
    @cached_property
    def _reading(self) -> Engine:
        options: dict[str, Any] = {sqlite.MODE: sqlite.READING}
        if self.engine.dialect.name == "postgresql":
            options |= {"postgresql_readonly": True, "isolation_level": "REPEATABLE READ"}
        return self.engine.execution_options(**options)

    @cached_property
    def _glancing(self) -> Engine:
        on_server = self.engine.dialect.name == "postgresql"
        return self.engine.execution_options(
            **{"isolation_level": "AUTOCOMMIT"} if on_server else {sqlite.MODE: sqlite.GLANCING}
        )

    @cached_property
    def _writing(self) -> Engine:
        return self.engine.execution_options(**{sqlite.MODE: sqlite.WRITING})

    @contextlib.contextmanager
    def write(self, name: str = "") -> Iterator[Session]:
        """A transaction, committed at the end of the block or rolled back if it raises.

        Nothing is retried. `name` identifies the commit in tests, see `db/failpoints.py`.

        Raises DatabaseBusy when another process held SQLite's write lock for longer
        than the busy timeout, DatabaseFull, or DatabaseUnreachable.
        """
        with self._session(self._writing) as session:
            yield session
            reach(f"{name}:before")
            session.commit()
            reach(f"{name}:after")

    @contextlib.contextmanager
    def _session(self, engine: Engine) -> Iterator[Session]:
        with translated(self.engine.url), Session(engine, expire_on_commit=False) as session:
            session.clock = self.clock
            if engine.dialect.name == "sqlite":
                # Takes the write lock now, before anything is read.
                session.connection()
            yield session

    def ping(self) -> None:
        """Raises a DatabaseError when the database does not answer."""
        with self.read() as session:
            session.scalars(select(1)).one()

    def close(self) -> None:
        self.engine.dispose()


def open_database(
    url: str | Path,
    *,
    create: bool = True,
    busy_timeout_s: float = 30.0,
    clock: Clock | None = None,
    check_schema: bool = True,
) -> Database:
    """Opens a database by its URL or the path of an SQLite file.

    URLs have the form `sqlite:///FILE` or `postgresql://USER:PASSWORD@HOST/NAME`.

    An empty database gets the current schema when `create`, and a missing SQLite file
    is made with its folders. An existing one must have this program's schema, unless
    `check_schema` is off for upgrading it. Raises DatabaseError or one of its kinds in
    db.errors.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        engine = _open_sqlite(parsed, create=create, busy_timeout_s=busy_timeout_s)
    else:
        # A dead server is noticed within seconds, a dead connection before it is used.
        engine = create_engine(
            parsed,
            pool_size=POOL_SIZE,
            max_overflow=POOL_OVERFLOW,
            pool_pre_ping=True,
            json_serializer=to_json,
            connect_args={
                "connect_timeout": 5,
                "options": f"-c lock_timeout={int(busy_timeout_s * 1000)}",
            },
        )
        postgres.configure(engine)
    refuse_odd_values(engine)
    try:
        with translated(parsed):
            if create:
                schema.create_if_empty(engine)
            if check_schema:
                schema.require_current(engine)
    except BaseException:
        engine.dispose()
        raise
    return Database(engine=engine, clock=clock)


def _parse(url: str | Path) -> URL:
    text = str(url)
    try:
        if "\0" in text:
            raise ValueError("NUL")
        if text.startswith(SQLITE) or "://" not in text:
            path = text.removeprefix(SQLITE)  # which may have what means something in a URL
            return URL.create("sqlite", database=path and str(Path(path).expanduser()))
        parsed = make_url(text)
    # RuntimeError: `~` is nobody's home.
    except (sa_errors.ArgumentError, ValueError, RuntimeError) as error:
        raise refuse_url() from error
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "postgresql+psycopg"):
        raise refuse_url(parsed)
    return parsed


def sqlite_file(url: str | Path) -> Path:
    """The file of an SQLite URL."""
    return Path(str(_parse(url).database)).absolute()


def _open_sqlite(url: URL, *, create: bool, busy_timeout_s: float) -> Engine:
    if url.database in (None, "", ":memory:"):
        raise DatabaseError(
            "an SQLite database in memory would be lost with the process; name a file, such as "
            "sqlite:///tuner.sqlite"
        )
    file = Path(str(url.database)).absolute()
    try:
        missing = not file.exists()
        if missing and create:
            file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseError(
            f"{url}: cannot make the folder {file.parent}: {error.strerror}; name another "
            f"file with --db"
        ) from error
    if missing and not create:
        raise DatabaseError(
            f"{url}: there is no such file; run `tuner db upgrade` to make it, or name "
            f"another with --db"
        )
    engine = create_engine(
        url.set(database=str(file)),
        module=sqlite.library(),
        pool_size=POOL_SIZE,
        max_overflow=POOL_OVERFLOW,
        json_serializer=to_json,
        connect_args={"timeout": busy_timeout_s},
    )
    sqlite.configure(engine, busy_timeout_s=busy_timeout_s)
    return engine
