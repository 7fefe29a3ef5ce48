"""Failpoints: places where a test may kill the process, by name.

There is one before and one after each commit of the job engine.
`TUNER_FAILPOINT=trial:before` kills the process that is about to commit a trial, as a
power cut would: nothing is closed or rolled back. Without the variable a failpoint costs
one look at the environment.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "TUNER_FAILPOINT"


def reach(name: str) -> None:
    """Ends this process by SIGKILL where the environment names this failpoint."""
    if os.environ.get(VARIABLE) == name:
        os.kill(os.getpid(), signal.SIGKILL)
