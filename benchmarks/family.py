"""The processes of a program over its life: its descendants and what they hold."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

# between two looks at who is there: what lives shorter than that has no time to be left
# behind unseen
LOOK_S = 0.5
# Where runners make control groups, by their process numbers.
GROUPS = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")


class Family:
    """The processes of a program, watched from a thread of its own until `stop`.

    A context manager. Processes that lose their parent are remembered.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._seen: dict[int, psutil.Process] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="family")

    def __enter__(self) -> Family:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look()

    def look(self) -> list[psutil.Process]:
        """Who descends from the program now."""
        try:
            now: list[psutil.Process] = psutil.Process(self._root).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        self._seen |= {process.pid: process for process in now}
        return now

    @property
    def count(self) -> int:
        """How many processes there were in all."""
        return len(self._seen)

    def alive(self) -> list[psutil.Process]:
        """The processes of the family that still run.

        psutil tells a process from a later one of the same number.
        """
        return [process for process in self._seen.values() if lives(process)]

    def control_groups(self) -> list[Path]:
        """Those that runners of this program made and that are still there without them."""
        folders = [Path(root) / f"tuner-runner-{pid}" for root in GROUPS for pid in self._seen]
        return [
            folder
            for folder in folders
            if folder.exists() and not Path("/proc", folder.name.rpartition("-")[2]).exists()
        ]


def lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def of_kind(processes: Iterable[psutil.Process], *texts: str) -> list[psutil.Process]:
    """Those whose command line or title has one of the texts in it."""
    matching = []
    for process in processes:
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            said = " ".join(process.cmdline())
            if any(text in said for text in texts):
                matching.append(process)
    return matching


def wait_until_gone(family: Family, folder: Path, timeout_s: float) -> tuple[float, list[str]]:
    """Wait until no process of the family lives and the folder is empty.

    Gives the seconds it took, and what is left where it took too long.
    """
    started = time.monotonic()
    while True:
        left = [f"process {process.pid}" for process in family.alive()]
        left += [f"folder {path.name}" for path in folder.iterdir()]
        seconds = time.monotonic() - started
        if not left or seconds > timeout_s:
            return seconds, left
        time.sleep(0.2)
