"""Exit codes of commands, and the error that each belongs to."""

from __future__ import annotations

from enum import IntEnum

from tuner.db.errors import DatabaseBusy, DatabaseFull
from tuner.errors import DatabaseError, TunerError, UsageError

TOO_MANY_REQUESTS = 429


class Exit(IntEnum):
    """The exit codes that scripts may rely on."""

    OK = 0
    FAILED = 1
    USAGE = 2  # the request or the database it names is wrong; nothing was written
    CANCELLED = 3
    NO_KERNEL = 5  # not even the default schedule could be verified
    REGRESSION = 6  # a gate such as bench --fail-if-slower failed
    INTERRUPTED = 130  # by a second Ctrl-C, as shells report it


def exit_code(error: TunerError) -> Exit:
    """The exit code of a command that an error ended."""
    status = getattr(error, "status", None)  # of an answer of a service
    if isinstance(status, int):
        return Exit.USAGE if 400 <= status < 500 and status != TOO_MANY_REQUESTS else Exit.FAILED
    if isinstance(error, (DatabaseBusy, DatabaseFull)):
        return Exit.FAILED
    return Exit.USAGE if isinstance(error, (UsageError, DatabaseError)) else Exit.FAILED
