"""How long a worker was busy: a moment of the wall clock, and a duration of a steady one."""

from __future__ import annotations

import time
from collections.abc import Callable


class Held:
    """What began now and is not over yet; times are in seconds since the epoch.

    The end is the beginning and what has passed on a clock that never jumps. A clock that
    is set meanwhile must not charge a job a day of a lane, or less than nothing.
    """

    def __init__(
        self,
        *,
        epoch_s: Callable[[], float] = time.time,
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.started_s = epoch_s()
        self._steady_s = steady_s
        self._began_s = steady_s()

    @property
    def now_s(self) -> float:
        """This moment, as it is where no clock was set since the beginning."""
        return self.started_s + self._steady_s() - self._began_s
