"""What a forked child does to itself before it loads generated code.

The steps are in the order that the kernel asks for: what needs privileges first, the
filter of system calls last. Nothing of it falls into the timed region.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tuner.measure.sandbox import landlock, process_limit, seccomp
from tuner.measure.sandbox.isolation import Isolation
from tuner.measure.sandbox.seccomp import LISTENER_CHANNEL, Filter
from tuner.measure.sandbox.support import Mechanism, Way

OUTPUT_LIMIT_BYTES = 64 << 20  # of any one file, standard output included
OPEN_FILES = 256

_PIPE = 3
_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS = 1, 8  # numbers from linux/prctl.h
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_CAPABILITY_VERSION, _DAC_READ_SEARCH = 0x20080522, 1 << 2  # from linux/capability.h


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """What one child may use."""

    isolation: Isolation
    cores: tuple[int, ...]
    scratch: str  # folder the child works in, the only one it may write to
    readable: tuple[str, ...]  # files and folders, where files are fenced
    # Address space beyond what the child inherits; None for programs that map more than
    # they use.
    memory_bytes: int | None
    cpu_s: int  # CPU seconds of all its threads, a second line of defence behind the timeout
    tasks: int  # processes and threads of runner and child together
    environment: Mapping[str, str]  # all the child sees
    calls: Filter | None  # None where calls are not filtered


def adopt_orphans() -> None:
    """Become the parent of grandchildren that outlive theirs, to find and kill them."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def enter(fence: Fence, *, parent: int, pipe: int, channel: int | None) -> int:
    """Fence the calling process, which `parent` has just forked.

    Returns the number that `pipe` has from now on. Standard input, output, error and
    `pipe` are all descriptors that stay open. If the filter has a listener, it goes to
    the supervisor over `channel`, a Unix socket.

    Raises OSError where the kernel refuses a step: a child that is not fenced must not
    run.
    """
    os.setsid()
    die_with(parent)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.chdir(fence.scratch)
    _redirect(os.path.join(fence.scratch, "output"))
    to_supervisor = _move(pipe, channel)
    os.environ.clear()
    os.environ.update(fence.environment)
    os.umask(0o077)
    os.sched_setaffinity(0, fence.cores)
    _limit(fence)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _confine(fence)
    die_with(parent)  # again, since a change of user resets it
    if fence.calls is not None:
        listener = seccomp.install(fence.calls, fence.isolation.machine)
        if listener is not None and to_supervisor is not None:
            socket.send_fds(to_supervisor, [b"l"], [listener])
            os.close(listener)  # whoever holds it could answer for the supervisor
    if to_supervisor is not None:
        to_supervisor.close()
    return _PIPE


def _confine(fence: Fence) -> None:
    isolation = fence.isolation
    user = (
        process_limit.own_user(os.getppid())
        if isolation.way(Mechanism.PROCESSES) is Way.USER
        else None
    )
    if user is not None:
        os.chown(fence.scratch, user, -1)
    if isolation.way(Mechanism.FILES):
        landlock.restrict(
            landlock.abi(), readable=fence.readable, writable=(fence.scratch, os.devnull)
        )
    if user is not None:
        _prctl(_PR_SET_KEEPCAPS, 1)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    if isolation.way(Mechanism.CAPABILITIES):
        # A user of the child's own could read nothing of its runner's; where paths are
        # fenced, that privilege does no harm.
        _keep_capabilities(
            _DAC_READ_SEARCH if user is not None and isolation.way(Mechanism.FILES) else 0
        )


def _limit(fence: Fence) -> None:
    limits: list[tuple[int, int]] = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, OUTPUT_LIMIT_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CPU, fence.cpu_s),
    ]
    if fence.isolation.way(Mechanism.PROCESSES) in (Way.USER, Way.USER_NAMESPACE):
        limits.append((resource.RLIMIT_NPROC, fence.tasks))
    if fence.memory_bytes is not None:
        limits.append((resource.RLIMIT_AS, _address_space_bytes() + fence.memory_bytes))
    for which, limit in limits:
        _, hard = resource.getrlimit(which)
        least = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(which, (least, least))


def _address_space_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


def _redirect(path: str) -> None:
    """Standard input from nothing; standard output and error into a file.

    The parent may quote the file.
    """
    null = os.open(os.devnull, os.O_RDONLY)
    output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _move(pipe: int, channel: int | None) -> socket.socket | None:
    """Move the pipe behind the standard descriptors, the channel behind it; close all others."""
    channel_copy = (
        None if channel is None else os.dup(channel)
    )  # out of the way of what is moved next
    if pipe != _PIPE:
        os.dup2(pipe, _PIPE)
    if channel_copy is not None:
        os.dup2(channel_copy, LISTENER_CHANNEL)
    first = _PIPE + 1 if channel_copy is None else LISTENER_CHANNEL + 1
    os.closerange(first, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return (
        None
        if channel_copy is None
        else socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=LISTENER_CHANNEL)
    )


def die_with(parent: int) -> None:
    """Kill the calling process, just forked by `parent`, when the parent ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above took effect
        os._exit(1)


def _keep_capabilities(capabilities: int) -> None:
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    # Effective, permitted, inheritable; then their upper halves.
    data = struct.pack("=6I", capabilities, capabilities, 0, 0, 0, 0)
    if ctypes.CDLL(None, use_errno=True).capset(header, data) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"capset: {os.strerror(number)}")


def _prctl(option: int, value: int) -> None:
    prctl: Callable[..., int] = ctypes.CDLL(None, use_errno=True).prctl
    if (
        prctl(
            option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)
        )
        != 0
    ):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")
