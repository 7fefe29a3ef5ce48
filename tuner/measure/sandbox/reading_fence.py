"""The fence around processes in which a compiler reads what strangers wrote.

Its parts are those of a runner's children.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tuner.measure.sandbox import landlock, seccomp
from tuner.measure.sandbox.confinement import readable_for_libraries
from tuner.measure.sandbox.system_calls import MACHINES

_PR_SET_NO_NEW_PRIVS = 38  # linux/prctl.h


def fence(*, readable: Sequence[str] = (), writable: Sequence[str] = ()) -> None:
    """Fence the calling process for good.

    Besides programs, it reads and writes files where the arguments say. It executes
    nothing, opens no socket, starts and signals no process. Its threads have the same
    fence. What the kernel lacks is left out.
    """
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    with _where_there_is_one():
        landlock.restrict(
            landlock.abi(),
            readable=(*readable_for_libraries(os.environ), *readable),
            writable=writable,
        )
    machine = platform.machine()
    if machine in MACHINES:
        with _where_there_is_one():
            seccomp.install(seccomp.library_filter(machine), machine)


@contextmanager
def _where_there_is_one() -> Iterator[None]:
    """Pass over a kernel that lacks the feature or denies it to everybody.

    Any other error would leave a hole unseen, and is raised.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EINVAL):
            raise
