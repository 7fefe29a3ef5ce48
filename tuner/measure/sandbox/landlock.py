"""The fence around files: with Landlock, a process gives up all paths but those it names.

Linux 5.13 and later. Numbers are from linux/landlock.h; the three system calls have the
same ones on every machine.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Sequence

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1, 1 << 1, 1 << 2, 1 << 3, 1 << 14
# Rights that are handled from each version of the ABI on.
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
# Execute, character device, socket, FIFO, block device.
_EXECUTE_AND_SPECIAL = _EXECUTE | 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_TCP = 3  # bind and connect, from version 4
_SCOPES = 3  # abstract sockets and signals, from version 6


def abi() -> int:
    """The interface's version.

    Raises OSError: ENOSYS or EOPNOTSUPP without Landlock, EPERM where it is forbidden.
    """
    return _call(_CREATE, None, 0, _VERSION)


def restrict(
    version: int,
    *,
    readable: Sequence[str],
    writable: Sequence[str],
    executable: Sequence[str] = (),
) -> None:
    """Fence the calling thread for good.

    It may read beneath `readable` (missing paths are skipped), and execute too beneath
    `executable`. Beneath `writable` it may do all but execute and make special files.
    From version 4 on TCP is closed, from
    version 6 on signals and abstract sockets to other processes too. Needs no_new_privs
    and a single thread. Raises OSError.
    """
    handled = max(rights for since, rights in _RIGHTS.items() if since <= version)
    attributes = struct.pack("=QQQ", handled, _TCP, _SCOPES)[
        : 24 if version >= 6 else 16 if version >= 4 else 8
    ]
    ruleset = _call(_CREATE, attributes, len(attributes), 0)
    try:
        for paths, rights in (
            (readable, _READ_FILE | _READ_DIR),
            (executable, _READ_FILE | _EXECUTE),
            (writable, handled & ~_EXECUTE_AND_SPECIAL),
        ):
            for path in paths:
                _allow(ruleset, path, rights & handled)
        _call(_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # what cannot be named cannot be granted: the child simply lacks it
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _OF_FILES
        _call(_ADD, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)


def _call(number: int, *arguments: int | bytes | None) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    converted = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result: int = libc.syscall(ctypes.c_long(number), *converted)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"landlock: {os.strerror(code)}")
    return result
