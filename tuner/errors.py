"""The root of all errors raised on purpose. Messages name the value, limit and way out."""

from __future__ import annotations


class TunerError(Exception):
    """Root error. `code` is stable: REST's problem code, and a field of logs."""

    code = "error"


class UsageError(TunerError):
    """The request itself is wrong. Exit code 2, HTTP 4xx. Nothing was written."""

    code = "invalid_request"


class WorkloadError(UsageError):
    """A workload that cannot be accepted.

    One in notation has `line` and `column`, from 1; one from a spec has `parameter`.
    """

    code = "invalid_workload"

    def __init__(
        self,
        message: str,
        *,
        line: int | None = None,
        column: int | None = None,
        parameter: str | None = None,
    ) -> None:
        super().__init__(
            f"line {line}, column {column}: {message}" if line is not None else message
        )
        self.line, self.column, self.parameter = line, column, parameter


class DatabaseError(TunerError):
    """The database cannot be used: it is unreachable, not writable, or of another version."""

    code = "database"


class IllegalSchedule(TunerError):
    """A config that no schedule of its sketch can realise. The trial shows the message."""

    code = "illegal_schedule"
