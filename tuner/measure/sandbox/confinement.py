"""The runner's own part of isolation, set up once and inherited by each child.

Also what the children may read: the C library, Python's own folders, facts about the
processor; never a home folder as such.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from tuner.measure.sandbox import namespaces
from tuner.measure.sandbox.isolation import Isolation
from tuner.measure.sandbox.process_limit import ROOM, SEALED, ControlGroup, join_control_group
from tuner.measure.sandbox.support import Mechanism, Way

_SYSTEM = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64", "/nix/store",
    "/gnu/store", "/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo", "/usr/share/locale",
    "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/proc/cpuinfo", "/proc/meminfo",
    "/proc/stat", "/proc/filesystems", "/proc/sys/vm", "/proc/sys/kernel/osrelease",
    "/sys/devices/system", "/sys/kernel/mm",
)  # fmt: skip
_OWN = "/proc/self"  # resolved in the child, so that it is the child's


class Confinement:
    """What this runner has entered so far. It leaves it only at its end."""

    def __init__(self) -> None:
        self._group: ControlGroup | None = None
        self._tasks = 0
        self.home = os.sched_getaffinity(0)  # cores of this process before it keeps to a lane
        self._apart = False

    def apply(self, isolation: Isolation, threads: int) -> int:
        """Enter what the level asks for; the limit of tasks in force.

        The control group is joined at any level where it can be had: it bounds what
        must be killed after a bad candidate. Needs a single thread. Raises OSError.
        """
        tasks = ROOM + 4 * threads + (os.cpu_count() or 1)
        if self._group is None:
            with suppress(OSError):
                self._group = join_control_group()
        if self._group is None and isolation.way(Mechanism.PROCESSES) is Way.CGROUP:
            raise OSError("the control group that was tried a moment ago cannot be joined any more")
        self._tasks = tasks
        if self._group is not None:
            self._group.limit(tasks)
        ways = {isolation.way(Mechanism.NETWORK), isolation.way(Mechanism.PROCESSES)}
        if not self._apart and ways & {Way.NAMESPACE, Way.USER_NAMESPACE}:
            namespaces.leave(as_root=os.geteuid() == 0)
            self._apart = True
        return tasks

    def strays(self) -> list[int]:
        """All processes under this runner's limit but itself: what a candidate started."""
        return (
            []
            if self._group is None
            else [pid for pid in self._group.members() if pid != os.getpid()]
        )

    @contextmanager
    def sealed(self) -> Iterator[None]:
        """Nothing under this runner's limit can start a process or thread meanwhile.

        What is refused for that does not count as a hit of the limit.
        """
        if self._group is None:
            yield
            return
        self._group.limit(SEALED)
        try:
            yield
        finally:
            self._group.limit(self._tasks)
            self._group.hit()

    def limit_hit(self) -> bool:
        """Whether a process or thread was refused for the limit since this was last asked."""
        return self._group is not None and self._group.hit()

    def close(self) -> None:
        if self._group is not None:
            self._group.leave()


def readable_for_kernels(library: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """What a child that runs generated code may read."""
    return (*_SYSTEM, _OWN, *_python(), *_searched(environment), os.path.realpath(library))


def readable_for_libraries(environment: Mapping[str, str]) -> tuple[str, ...]:
    """What a child that runs a library of known origin may read.

    Also wherever Python looks for packages.
    """
    return (
        *_SYSTEM,
        _OWN,
        *_python(),
        *_searched(environment),
        *(path for path in sys.path if os.path.isabs(path)),
    )


def _python() -> tuple[str, ...]:
    """The interpreter's and the installed packages' folders, and this package's own."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    packages = Path(np.__file__).parent
    own = Path(__file__).resolve().parents[1]
    return (
        *(f"{prefix}/{name}" for prefix in sorted(prefixes) for name in ("lib", "lib64")),
        str(packages),
        str(own),
    )


def _searched(environment: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        path for path in environment.get("LD_LIBRARY_PATH", "").split(":") if os.path.isabs(path)
    )
