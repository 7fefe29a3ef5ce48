"""Exit codes, and which error ends the command with which."""

from __future__ import annotations

from enum import IntEnum

from db.errors import DatabaseBusy, DatabaseFull
from tuner.errors import DatabaseError, TunerError, UsageError


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2  # the request or the database it names is wrong; nothing was written
    CANCELLED = 3
    NO_KERNEL = 5  # not even the default schedule could be verified
    REGRESSION = 6  # a gate such as bench --fail-if-slower failed
    INTERRUPTED = 130  # by a second Ctrl-C, as shells report it


def exit_code(error: TunerError) -> Exit:
    if isinstance(error, (DatabaseBusy, DatabaseFull)):
        return Exit.FAILED
    return Exit.USAGE if isinstance(error, (UsageError, DatabaseError)) else Exit.FAILED
