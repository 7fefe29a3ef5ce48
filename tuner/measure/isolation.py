"""How far a candidate's child is fenced off before it runs generated code: one place, levels by name, recorded with each trial.

Level "process": own session and process group, killed with its parent, no new privileges, resource limits, pinned to the lane's
cores, all descriptors closed but the result's pipe, environment scrubbed, working in a scratch folder that is removed afterwards.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tuner.errors import UsageError

LEVELS: tuple[str, ...] = ("process",)  # weakest first
DEFAULT_LEVEL = "process"

OUTPUT_LIMIT_BYTES = 64 << 20  # of any one file, standard output included
OPEN_FILES = 256

_PIPE = 3
_PR_SET_PDEATHSIG = 1  # numbers from linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """What one child may use."""

    level: str
    cores: tuple[int, ...]
    scratch: str  # folder the child works in
    memory_bytes: int | None  # address space on top of what the child inherits; None for programs that map more than they use
    cpu_s: int  # CPU seconds of all its threads, a second line of defence behind the timeout
    environment: Mapping[str, str]  # all the child sees


def check_level(level: str) -> None:
    """Raises UsageError for a level this build does not know."""
    if level not in LEVELS:
        raise UsageError(f"unknown isolation level {level!r}; use one of {', '.join(LEVELS)}")


def adopt_orphans() -> None:
    """Makes grandchildren that outlive their parent ours, so that they can be found and killed."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def enter(fence: Fence, *, parent: int, pipe: int) -> int:
    """Fences the calling process, which was just forked by `parent`, and gives the number `pipe` has from now on.

    Standard input, output, error and `pipe` are all the descriptors that stay open.

    Raises OSError where the kernel refuses a step: a child that is not fenced must not run.
    """
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above took effect
        os._exit(1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.chdir(fence.scratch)
    _redirect(os.path.join(fence.scratch, "output"))
    _move(pipe)
    os.environ.clear()
    os.environ.update(fence.environment)
    os.umask(0o077)
    os.sched_setaffinity(0, fence.cores)
    _limit(fence)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    return _PIPE


def _limit(fence: Fence) -> None:
    limits: list[tuple[int, int]] = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, OUTPUT_LIMIT_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CPU, fence.cpu_s),
    ]
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
    """Standard input from nothing, standard output and error into a file that the parent may quote."""
    null = os.open(os.devnull, os.O_RDONLY)
    output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _move(pipe: int) -> None:
    """The pipe right behind the standard descriptors, and nothing behind it."""
    if pipe != _PIPE:
        os.dup2(pipe, _PIPE)
    os.closerange(_PIPE + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _prctl(option: int, value: int) -> None:
    prctl: Callable[..., int] = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")
