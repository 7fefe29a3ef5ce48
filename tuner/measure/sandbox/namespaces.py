"""A runner without a network: its process moves to namespaces of its own once.

All its children are born there. Making a network namespace takes some 20 ms, too long
to do it for each child.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_NEWUSER, _NEWIPC, _NEWNET = 0x10000000, 0x08000000, 0x40000000  # CLONE_* of linux/sched.h


def leave(*, as_root: bool) -> None:
    """Move to a network and System V IPC of this process's own.

    Without root to users of its own too, with the same numbers as before. Needs a
    single thread. Raises OSError, after which a process that is not root must not go
    on.
    """
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _NEWNET | _NEWIPC | (0 if as_root else _NEWUSER)
    if libc.unshare(ctypes.c_int(flags)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")
    if not as_root:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
