"""The supervisor's side of a child's filter of system calls.

It answers calls that need a decision, and names the one that ends a trial. The kernel
enforces (filter, Landlock, limits). What is read here from the child's memory serves
the message alone, since a hostile child could change it meanwhile.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tuner.measure.sandbox import seccomp
from tuner.measure.sandbox.seccomp import Notification
from tuner.measure.sandbox.system_calls import CLONING, MAPPING, OPENING, SIGNALLING, call_names

# Mappings of more than this part of the memory limit are reported. Filling one costs far
# more than the report.
REPORTED_FRACTION = 4
# Opened for writing by one candidate. With the limit of a file's size it limits them all.
MAX_WRITTEN_FILES = 16
_PATH_BYTES = 4096
_AT_FDCWD = -100


class Refusals:
    """What one child was refused.

    Poll `descriptor` for reading, and call `attend` when it is ready. Close it.
    """

    def __init__(
        self, channel: socket.socket, machine: str, *, readable: Sequence[str], scratch: str
    ) -> None:
        """`channel` is the socket over which the child sends its listener."""
        self._channel = channel
        self._listener: int | None = None
        self._names = call_names(machine)
        # "self" would be the supervisor here. The child's own paths are recognised by name.
        self._readable = tuple(
            os.path.realpath(path) for path in readable if not path.startswith("/proc/self")
        )
        self._scratch = os.path.realpath(scratch)
        self._written = 0
        self.memory_bytes = 0  # the largest mapping refused for being beyond the limit

    @property
    def descriptor(self) -> int:
        return self._channel.fileno() if self._listener is None else self._listener

    def attend(self) -> str | None:
        """Deal with what is pending. In words, what the child must be ended for."""
        if self._listener is None:
            _, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1)
            self._listener = descriptors[0] if descriptors else None
            return None
        notification = seccomp.receive(self._listener)
        if notification is None:
            return None
        name = self._names.get(notification.number, f"system call {notification.number}")
        if name in MAPPING:
            fits = _fits(notification.pid, notification.arguments[1])
            if not fits:
                self.memory_bytes = max(self.memory_bytes, notification.arguments[1])
            return self._answer(notification, None if fits else errno.ENOMEM, None)
        if name in OPENING:
            reason = self._opening(notification, name)
            return self._answer(notification, None if reason is None else errno.EACCES, reason)
        return self._answer(notification, errno.EPERM, f"called {_described(name, notification)}")

    def close(self) -> None:
        """Idempotent."""
        if self._listener is not None:
            os.close(self._listener)
            self._listener = None
        self._channel.close()

    def _answer(
        self, notification: Notification, refusal: int | None, reason: str | None
    ) -> str | None:
        if reason is None and self._listener is not None:
            seccomp.answer(self._listener, notification, refusal)
        # A call that ends the trial is not answered: it waits until the child is killed.
        return reason

    def _opening(self, notification: Notification, name: str) -> str | None:
        """Why the child must not go on.

        None where the file is its own business, or does not exist.
        """
        directory, address, flags = (
            notification.arguments[:3] if name == "openat" else (0, *notification.arguments[:2])
        )
        path = _path(notification.pid, None if name == "open" else directory, address)
        if path is None or path.startswith(
            ("/proc/self/", "/proc/thread-self/", f"/proc/{notification.pid}/")
        ):
            return None
        real_path = os.path.realpath(path)
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & (os.O_CREAT | os.O_TRUNC):
            if real_path == os.devnull:
                return None
            if not _beneath(real_path, (self._scratch,)):
                return f"tried to write {path}"
            self._written += 1
            return (
                f"opened more than {MAX_WRITTEN_FILES} files for writing"
                if self._written > MAX_WRITTEN_FILES
                else None
            )
        if _beneath(real_path, (*self._readable, self._scratch)) or not os.path.lexists(real_path):
            return None
        return f"tried to read {path}"


def _described(name: str, notification: Notification) -> str:
    if name in CLONING:
        return f"{name} for a new process"
    if name in SIGNALLING:
        target = notification.arguments[0] & 0xFFFFFFFF
        return f"{name} for process {target - (1 << 32) if target >> 31 else target}"
    return name


def _fits(thread: int, length: int) -> bool:
    """Whether the address space has room for so many bytes more. The kernel decides in the end."""
    try:
        used = int(Path(f"/proc/{thread}/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
        limits = Path(f"/proc/{thread}/limits").read_text()  # prlimit would ask for the same user
        soft = limits.partition("Max address space")[2].split()[0]
    except (OSError, ValueError, IndexError):
        return True
    return soft == "unlimited" or used + length <= int(soft)


def _path(thread: int, directory: int | None, address: int) -> str | None:
    """The path at `address` of the child, absolute; None where it cannot be read."""
    try:
        memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY)
    except OSError:
        return None
    with suppress(OSError):
        try:
            text, page = b"", os.sysconf("SC_PAGESIZE")
            while b"\0" not in text and len(text) < _PATH_BYTES:
                text += os.pread(memory, page - (address + len(text)) % page, address + len(text))
        finally:
            os.close(memory)
        path = os.fsdecode(text.partition(b"\0")[0])
        number = None if directory is None else ((directory & 0xFFFFFFFF) ^ (1 << 31)) - (1 << 31)
        base = (
            f"/proc/{thread}/cwd" if number in (None, _AT_FDCWD) else f"/proc/{thread}/fd/{number}"
        )
        return path if path.startswith("/") else os.path.join(os.readlink(base), path)
    return None


def _beneath(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)
