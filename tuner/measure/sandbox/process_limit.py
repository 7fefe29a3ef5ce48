"""The limit of processes and threads of a runner and its candidates together.

It binds root as well. The runner moves into a control group of its own once, so that
each child is born under the limit. Where no group can be had, RLIMIT_NPROC counts a
user namespace (without root) or a user number of the child's own (as root).
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

# Tasks beyond what the lane's threads need: libraries start pools before they can be kept
# from it.
ROOM = 64
FIRST_USER = 0x7C000000  # user numbers that no distribution or service manager hands out begin here
SEALED = 1  # tasks of a group whose members are to end: none may start another
END_TIMEOUT_S = 5.0  # until what was killed is gone; a storm of processes dies slowly
_NAME = "tuner-runner-"


class ControlGroup:
    """A group with a limit of tasks, which this process has joined."""

    def __init__(self, folder: Path, home: Path) -> None:
        self._folder = folder
        self._home = home
        self._seen = self._count()

    def limit(self, tasks: int) -> None:
        (self._folder / "pids.max").write_text(str(tasks))

    def members(self) -> list[int]:
        try:
            return [int(word) for word in (self._folder / "cgroup.procs").read_text().split()]
        except OSError:
            return []

    def hit(self) -> bool:
        """Whether something was refused for the limit since this was last asked."""
        before, self._seen = self._seen, self._count()
        return self._seen > before

    def leave(self) -> None:
        """Return to the group that the process came from, and remove this one. Idempotent."""
        with suppress(OSError):
            (self._home / "cgroup.procs").write_text(str(os.getpid()))
        with suppress(OSError):
            self._folder.rmdir()

    def _count(self) -> int:
        try:
            words = (self._folder / "pids.events").read_text().split()
            return int(words[words.index("max") + 1])
        except (OSError, ValueError):
            return 0


def join_control_group() -> ControlGroup:
    """Make a group and move this process into it.

    Raises OSError with the reason where that cannot be.
    """
    reason = OSError("no control group with the pids controller is mounted")
    for parent, home in _places():
        folder = parent / f"{_NAME}{os.getpid()}"
        try:
            _sweep(parent)
            folder.mkdir(exist_ok=True)
            if not (folder / "pids.max").exists():
                raise OSError(f"{parent} does not pass the pids controller on")
            (folder / "cgroup.procs").write_text(str(os.getpid()))
            return ControlGroup(folder, home)
        except OSError as error:
            reason = error
            with suppress(OSError):
                folder.rmdir()
    raise reason


def end_group(runner: int) -> None:
    """End what a killed runner left behind.

    A runner may for instance be killed while it ends a storm of processes.
    """
    for parent, home in _places():
        folder = parent / f"{_NAME}{runner}"
        if not folder.is_dir():
            continue
        group, deadline = ControlGroup(folder, home), time.monotonic() + END_TIMEOUT_S
        with suppress(OSError):
            group.limit(SEALED)
        while (members := group.members()) and time.monotonic() < deadline:
            for pid in members:
                if pid > 0:  # 0 stands for one of another namespace
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        with suppress(OSError):
            folder.rmdir()


def own_user(runner: int) -> int:
    """The user number for the candidates of the runner with this process number."""
    return FIRST_USER + runner


def _places() -> list[tuple[Path, Path]]:
    """Where a group can be made: the group to make ours in, and the group we are in.

    Version 1's pids hierarchy, then version 2 beneath and beside our own group.
    """
    places: list[tuple[Path, Path]] = []
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        for words in mounts:
            after = words.index("-")
            kind, options = words[after + 1], words[after + 3].split(",")
            if not (
                kind == "cgroup2"
                if number == "0"
                else kind == "cgroup" and "pids" in controllers and "pids" in options
            ):
                continue
            # A container mounts its own part of the hierarchy.
            inside = os.path.relpath(path, words[3])
            home = Path(words[4], *(() if inside.startswith("..") else (inside,)))
            places.append((home, home))
            if number == "0" and home != Path(words[4]):
                places.append((home.parent, home))
    return places


def _sweep(parent: Path) -> None:
    """Remove groups of runners that were killed.

    An empty group can only be in use by a process that is just joining.
    """
    for folder in parent.glob(f"{_NAME}*"):
        if not Path("/proc", folder.name.removeprefix(_NAME)).exists():
            with suppress(OSError):
                folder.rmdir()
