"""Turns on cores: what one run of tuner times there and what another does never overlap.

Two services of a machine, or a command beside a service, have lanes of the same cores.
The turn on a core is a lock on the core's folder in sysfs: every process may open it,
whoever runs it, and the system ends the turn of a process that dies.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path

CORES = Path("/sys/devices/system/cpu")
# Longer than most candidates hold a core. Who does not let go of it by then, being stopped,
# is not waited for again until the core was free once.
PATIENCE_S = 10.0
POLL_S = 0.001  # short beside a timing of 50 ms
# Whoever waits for a core holds the lock on this folder of it, and is the next to have it:
# the present holder could otherwise have the next turn, too, and the one after that.
ENTRANCE = "topology"


class CoreTurns:
    """The turns of one user of cores. Not thread-safe."""

    def __init__(self, *, root: Path = CORES) -> None:
        """`root` holds a folder `cpuN` for each core."""
        self._root = root
        self._patience_s = PATIENCE_S

    @contextmanager
    def turn(self, cores: Sequence[int], *, alone: bool) -> Iterator[float]:
        """Have these cores for the block; gives the seconds that it waited for them.

        `alone` shares them with no other turn, as what is timed must. Others share cores with
        each other. One process must not ask for a core alone that it has.
        """
        began_s = time.monotonic()
        deadline_s = began_s + self._patience_s
        kind = LOCK_EX if alone else LOCK_SH
        with ExitStack() as held:
            free = True
            for core in sorted(cores):  # in this order, so that no two wait for each other
                folder = self._root / f"cpu{core}"
                with ExitStack() as entrance:
                    _lock(folder / ENTRANCE, LOCK_EX, deadline_s, entrance)
                    free &= _lock(folder, kind, deadline_s, held)
            self._patience_s = PATIENCE_S if free else 0.0
            yield time.monotonic() - began_s


def _lock(folder: Path, kind: int, deadline_s: float, held: ExitStack) -> bool:
    """Locks a folder until `held` ends; whether that was possible in time.

    Where the system shows no such folder, or locks none, there are no turns to take.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return True
    held.callback(os.close, descriptor)
    while True:
        try:
            flock(descriptor, kind | LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(POLL_S)
        except OSError:
            return True
