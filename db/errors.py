"""Errors of the database, a type for each that callers must distinguish.

`retryable` says whether the same call may succeed later without any other change.
"""

from __future__ import annotations

from tuner.errors import DatabaseError, TunerError, UsageError


class DatabaseBusy(DatabaseError):
    """Another process held the write lock for longer than the busy timeout; nothing was written."""

    code = "database_busy"
    retryable = True


class DatabaseFull(DatabaseError):
    """No space left where the database lives; the transaction was rolled back."""

    code = "database_full"
    retryable = True


class DatabaseDamaged(DatabaseError):
    """The file is no SQLite database, or not a whole one."""

    code = "database_damaged"


class DatabaseUnreachable(DatabaseError):
    """The server does not answer, refuses the login, or dropped the connection."""

    code = "database_unreachable"
    retryable = True


class SchemaMismatch(DatabaseError):
    """The schema is older or newer than this program, or it is not a database of ours."""

    code = "schema_mismatch"


class NotFound(UsageError):
    """Nothing is known under this name."""

    code = "not_found"


class IllegalTransition(UsageError):
    """The state something is in does not allow what was asked."""

    code = "illegal_transition"


class IdempotencyConflict(UsageError):
    """The idempotency key was used before with a different request."""

    code = "idempotency_conflict"


class StaleLease(TunerError):
    """A write by an orchestrator or worker that no longer holds the lease; nothing was written."""

    code = "stale_lease"


class LeaseHeld(TunerError):
    """The job is being worked on by someone else whose lease has not run out."""

    code = "lease_held"


class AlreadyRecorded(TunerError):
    """This trial number has its outcome already; the recorded one stands."""

    code = "already_recorded"


class IncumbentChanged(TunerError):
    """The kernel that a candidate was raced against is no longer the promoted one: race again."""

    code = "incumbent_changed"
