"""Runs a program with the recorder in every Python that it starts."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tuner.scratch import temporary_folder
from tuner.trace.program import HERE, compile_calls, run_program
from tuner.trace.record import Trace, merged

SOURCE = HERE / "recorder" / "numpy_calls.c"
LIBRARY = "numpy_calls.so"


def recorded(command: Sequence[str], share: float) -> Trace:
    """Runs a command to its end and returns what it called.

    The recorder may take `share` of the time (0.02 for 2%). The exit code is that of
    `run_program`. Raises UsageError for a program that cannot be started, LinkError without a
    C compiler.
    """
    with temporary_folder("tuner-trace-") as folder:
        compile_calls(SOURCE, folder / LIBRARY)
        begun_s = time.monotonic()
        variables = {"TUNER_TRACE_FOLDER": str(folder), "TUNER_TRACE_SHARE": str(share)}
        code = run_program(command, variables)
        elapsed_s = time.monotonic() - begun_s
        processes, calls = merged(folder)
    return Trace(
        command=tuple(command),
        exit_code=code,
        elapsed_s=elapsed_s,
        processes=processes,
        calls=calls,
    )
