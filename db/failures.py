"""Translates errors of the database drivers into those of `db/errors.py`.

Each message names the database, with its password masked, and the way out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sqlalchemy import Engine, event, exc
from sqlalchemy.engine import URL, ExceptionContext

from tuner.db.errors import DatabaseBusy, DatabaseDamaged, DatabaseFull, DatabaseUnreachable
from tuner.errors import DatabaseError, UsageError

FORMS = "sqlite:///FILE, the path of an SQLite file, or postgresql://USER:PASSWORD@HOST:PORT/NAME"
# https://www.postgresql.org/docs/current/errcodes-appendix.html
POSTGRES_FULL = ("53100",)
# lock timeout, deadlock, serialisation, too many connections
POSTGRES_BUSY = ("55P03", "40P01", "40001", "53300")
POSTGRES_READ_ONLY = ("25006",)
# What may happen to any statement: of memory, disks, connections. Others are faults of ours.
OF_THE_SURROUNDINGS = (exc.OperationalError, exc.InternalError, exc.InterfaceError)


def refuse_url(url: URL | None = None) -> DatabaseError:
    """The error for an address of a form or kind that is not supported."""
    given = (
        "the database's address cannot be read"
        if url is None
        else f"{url.get_backend_name()} is not a supported database"
    )
    return DatabaseError(f"{given}; give {FORMS}")


def refuse_odd_values(engine: Engine) -> None:
    """Raises a UsageError for values that no column can hold, wherever they are used.

    Such are texts that are too long or contain NUL or lone surrogates, and numbers that
    are too large.
    """

    @event.listens_for(engine, "handle_error")
    def failed(context: ExceptionContext) -> None:
        error = context.original_exception
        if isinstance(error, OverflowError | UnicodeEncodeError) or isinstance(
            context.sqlalchemy_exception, exc.DataError
        ):
            text = " ".join(str(error).split())[:200]
            raise UsageError(
                f"a value cannot be stored or looked for: {text}; give a shorter text or a "
                f"smaller number"
            ) from error


@contextlib.contextmanager
def translated(url: URL) -> Iterator[None]:
    """Translates driver errors raised in the block; errors that are our own bugs pass."""
    try:
        yield
    except exc.DBAPIError as error:
        translation = _translate(url.render_as_string(hide_password=True), error)
        if translation is None:
            raise
        raise translation from error
    except UnicodeError as error:
        if "idna" not in str(error):  # as which names of hosts are looked up
            raise
        where = url.render_as_string(hide_password=True)
        raise DatabaseUnreachable(
            f"{where}: no server has such a name: {error}; check the address"
        ) from error
    except exc.TimeoutError as error:
        where = url.render_as_string(hide_password=True)
        raise DatabaseBusy(
            f"{where}: all connections were in use for 30 s; try again, or run fewer "
            f"requests at once"
        ) from error


def _translate(where: str, error: exc.DBAPIError) -> DatabaseError | None:
    state = getattr(error.orig, "sqlstate", None)
    text = " ".join(str(error.orig).split())
    if where.startswith("sqlite"):
        return _translate_sqlite(where, text, error)
    if state in POSTGRES_FULL:
        return DatabaseFull(f"{where}: no space left on the server; free some and try again")
    if state in POSTGRES_BUSY:
        return DatabaseBusy(f"{where}: {text}; nothing was written, try again")
    if state in POSTGRES_READ_ONLY:
        return DatabaseError(
            f"{where}: {text}; writes need a server that is not a read-only replica"
        )
    if (
        error.connection_invalidated
        or (state is None and isinstance(error, exc.OperationalError))
        or str(state)[:2] in ("08", "28", "3D", "57")
    ):
        return DatabaseUnreachable(
            f"{where}: {text}; check that the server runs and the address, user and password "
            f"are right"
        )
    return _other(where, text, error)


def _other(where: str, text: str, error: exc.DBAPIError) -> DatabaseError | None:
    if isinstance(error, OF_THE_SURROUNDINGS):
        return DatabaseError(f"{where}: {text}; look into the database's log")
    return None


def _translate_sqlite(where: str, text: str, error: exc.DBAPIError) -> DatabaseError | None:
    if "locked" in text or "busy" in text:
        return DatabaseBusy(
            f"{where}: another program holds the database; nothing was written, try again "
            f"or stop it"
        )
    if "full" in text:
        return DatabaseFull(
            f"{where}: no space left on its disk; free some and try again, nothing was written"
        )
    if "readonly" in text:
        return DatabaseError(
            f"{where}: the file or its folder is not writable; change its permissions or name "
            f"another with --db"
        )
    if "unable to open" in text:
        return DatabaseError(
            f"{where}: cannot be opened for writing; check the folder's permissions or name "
            f"another file with --db"
        )
    if "not a database" in text or "malformed" in text:
        return DatabaseDamaged(
            f"{where}: {text}; restore a backup with `tuner db restore`, or name another file "
            f"with --db"
        )
    if "disk I/O" in text:
        return DatabaseError(f"{where}: {text}; check the disk")
    return _other(where, text, error)
