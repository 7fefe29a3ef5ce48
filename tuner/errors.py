"""The one root of all errors the product raises on purpose: each names the value, the
limit and the way out."""

from __future__ import annotations


class TunerError(Exception):
    """Root error. `code` is stable (REST problem code, log field)."""

    code = "error"


class UsageError(TunerError):
    """The request itself is wrong: exit code 2, HTTP 4xx; nothing was written."""

    code = "invalid_request"


class WorkloadError(UsageError):
    """A workload that cannot be accepted; `line` and `column` (from 1) where it came as
    notation, `parameter` where as a spec."""

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
    """The database cannot be used: unreachable, not writable, or of another version."""

    code = "database"


class IllegalSchedule(TunerError):
    """A config that no schedule of its sketch can realise; the text is the reason shown
    on the trial."""

    code = "illegal_schedule"
