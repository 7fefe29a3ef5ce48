"""What the running kernel offers to fence candidates off, mechanism by mechanism.

Each is tried, not guessed. Trying happens in forked children, so that the caller stays
as it is.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tuner.measure.sandbox import landlock, namespaces, process_limit, seccomp
from tuner.measure.sandbox.system_calls import MACHINES

_PR_SET_NO_NEW_PRIVS = 38
_LISTENING_SINCE = (5, 5)  # Linux, from which on a supervisor may let a call go on
_ABSENT = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


class Mechanism(StrEnum):
    """In the order in which levels add them."""

    SECCOMP = "seccomp"  # system calls
    CAPABILITIES = "capabilities"  # root's privileges
    PROCESSES = "processes"  # their number
    FILES = "files"  # which of them can be reached
    NETWORK = "network"


class State(StrEnum):
    AVAILABLE = "available"
    MISSING = "missing"  # the kernel does not have it
    DENIED = "denied"  # the kernel has it, this process may not use it


class Way(StrEnum):
    """How a mechanism works here."""

    LISTENER = "listener"  # a filter whose supervisor is asked about refused calls
    KILL = "kill"  # a filter that kills at once
    CAPSET = "capset"
    CGROUP = "cgroup"  # a control group of the runner
    USER = "user"  # a user number of the child's own
    USER_NAMESPACE = "user namespace"  # of the runner
    LANDLOCK = "landlock"
    NAMESPACE = "namespace"  # a network namespace of the runner
    SECCOMP = "seccomp"  # the filter of system calls refuses it


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What trying a mechanism showed."""

    state: State
    way: Way | None  # None where it is not available
    detail: str  # in words, with the reason where it is not available


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """What trying all mechanisms showed."""

    machine: str
    findings: Mapping[Mechanism, Finding]


def probe() -> Support:
    """What the running kernel offers to this process, which must have one thread.

    Takes some 50 ms.
    """
    calls = _seccomp()
    filtering = calls.state is State.AVAILABLE
    return Support(
        machine=platform.machine(),
        findings={
            Mechanism.SECCOMP: calls,
            Mechanism.CAPABILITIES: Finding(
                state=State.AVAILABLE, way=Way.CAPSET, detail="all dropped"
            ),
            Mechanism.PROCESSES: _processes(filtering),
            Mechanism.FILES: _files(),
            Mechanism.NETWORK: _network(filtering),
        },
    )


def probe_apart() -> Support:
    """The same from any process, threads or not: a fresh interpreter tries.

    Raises OSError when it cannot be started.
    """
    command = [sys.executable, "-P", "-m", "tuner.measure.sandbox.support"]
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path if entry)
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": path, "PATH": os.defpath},
        cwd="/",
    )
    if done.returncode != 0:
        raise OSError(f"trying isolation failed: {done.stderr.strip()[-500:]}")
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    findings = {
        Mechanism(name): Finding(state=State(state), way=Way(way) if way else None, detail=detail)
        for name, state, way, detail in rows
    }
    return Support(machine=platform.machine(), findings=findings)


def _seccomp() -> Finding:
    machine = platform.machine()
    if machine not in MACHINES:
        return Finding(
            state=State.MISSING,
            way=None,
            detail=f"no table of system calls for {machine}, only {', '.join(MACHINES)}",
        )
    if (failure := _attempt(lambda: _try_filter(machine, listening=False))) is not None:
        return _refused("seccomp filters", failure)
    if (
        _release() < _LISTENING_SINCE
        or _attempt(lambda: _try_filter(machine, listening=True)) is not None
    ):
        return Finding(
            state=State.AVAILABLE,
            way=Way.KILL,
            detail="refused calls kill, unnamed: the filter has no listener here",
        )
    return Finding(
        state=State.AVAILABLE, way=Way.LISTENER, detail="refused calls end the trial and are named"
    )


def _processes(filtering: bool) -> Finding:
    group = _attempt(_try_group)
    if group is None:
        return Finding(
            state=State.AVAILABLE,
            way=Way.CGROUP,
            detail="limit of tasks by a control group of the runner",
        )
    if os.geteuid() == 0 and (user := _attempt(_try_user)) is None:
        return Finding(
            state=State.AVAILABLE,
            way=Way.USER,
            detail="limit of tasks by a user number of the child's own",
        )
    if os.geteuid() != 0 and (user := _attempt(lambda: namespaces.leave(as_root=False))) is None:
        return Finding(
            state=State.AVAILABLE,
            way=Way.USER_NAMESPACE,
            detail="limit of tasks by a user namespace of the runner",
        )
    if filtering:
        return Finding(
            state=State.AVAILABLE,
            way=Way.SECCOMP,
            detail=f"the filter refuses processes; threads are bounded by memory alone (control "
            f"group: {group}; user: {user})",
        )
    return Finding(state=State.DENIED, way=None, detail=f"control group: {group}; user: {user}")


def _files() -> Finding:
    try:
        version = landlock.abi()
    except OSError as error:
        return _refused("Landlock", error)
    return Finding(state=State.AVAILABLE, way=Way.LANDLOCK, detail=f"Landlock, version {version}")


def _network(filtering: bool) -> Finding:
    failure = _attempt(lambda: namespaces.leave(as_root=os.geteuid() == 0))
    if failure is None:
        return Finding(
            state=State.AVAILABLE,
            way=Way.NAMESPACE,
            detail="a network namespace of the runner, without interfaces",
        )
    if filtering:
        return Finding(
            state=State.AVAILABLE,
            way=Way.SECCOMP,
            detail=f"the filter refuses sockets (no namespace: {failure})",
        )
    return _refused("network namespaces", failure)


def _refused(feature: str, error: OSError) -> Finding:
    if error.errno in _ABSENT:
        return Finding(
            state=State.MISSING, way=None, detail=f"this kernel has no {feature} ({error})"
        )
    return Finding(state=State.DENIED, way=None, detail=f"{feature}: {error}")


def _attempt(step: Callable[[], None]) -> OSError | None:
    """The error that the step raised in a forked child; None when it worked."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            step()
            status = 0
        except OSError as error:
            os.write(writing, f"{error.errno or 0}\t{error.strerror or error}".encode())
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        report = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    if status == 0:
        return None
    number, _, text = report.partition("\t")
    return OSError(int(number or 0), text or "the attempt ended without a word")


def _try_filter(machine: str, *, listening: bool) -> None:
    ctypes.CDLL(None).prctl(
        _PR_SET_NO_NEW_PRIVS,
        ctypes.c_ulong(1),
        ctypes.c_ulong(0),
        ctypes.c_ulong(0),
        ctypes.c_ulong(0),
    )
    calls = seccomp.library_filter(machine)
    seccomp.install(seccomp.Filter(code=calls.code, own=calls.own, listening=listening), machine)


def _try_group() -> None:
    process_limit.join_control_group().leave()


def _try_user() -> None:
    user = process_limit.own_user(os.getppid())
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def _release() -> tuple[int, int]:
    major, minor, *_ = (*platform.release().split("."), "0")
    return int(major), int("".join(character for character in minor if character.isdigit()) or 0)


if __name__ == "__main__":
    for name, finding in probe().findings.items():
        print(
            name,
            finding.state,
            finding.way or "",
            finding.detail.replace("\t", " ").replace("\n", " "),
            sep="\t",
        )
