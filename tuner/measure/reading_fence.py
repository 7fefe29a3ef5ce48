"""The fence around processes in which a compiler reads what strangers wrote; its parts are those of a runner's children."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Sequence
from contextlib import suppress

from tuner.measure import landlock, seccomp
from tuner.measure.confinement import readable_for_libraries
from tuner.measure.system_calls import MACHINES

_PR_SET_NO_NEW_PRIVS = 38  # linux/prctl.h


def fence(*, readable: Sequence[str] = (), writable: Sequence[str] = ()) -> None:
    """For good: files besides programs are read and written where the arguments say, nothing is executed, no socket is opened, no
    process is started or signalled. Threads may be started, and have the same fence. What the kernel lacks is left out.
    """
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    with suppress(OSError):
        landlock.restrict(landlock.abi(), readable=(*readable_for_libraries(os.environ), *readable), writable=writable)
    machine = platform.machine()
    if machine in MACHINES:
        with suppress(OSError):
            seccomp.install(seccomp.library_filter(machine), machine)
