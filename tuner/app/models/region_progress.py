"""How far the tuning of a region is, as one line of text."""

from __future__ import annotations

import time
from collections.abc import Callable

from tuner.tuning import TrialRecorded
from tuner.units import duration
from tuner.workers.jobs.progress import ModelRound, Phase, Progress

_EVERY_S = 0.2  # between two lines


class RegionProgress:
    """An observer of a region's job; calls `say` with the line, not too often."""

    def __init__(
        self, say: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._clock = say, clock
        self._begin_s = clock()
        self._said_s = self._begin_s - _EVERY_S
        self._phase, self._round, self._fresh = "preparing", None, 0
        self._tell()

    _round: ModelRound | None

    def observe(self, progress: Progress) -> None:
        """Notes what has happened."""
        if isinstance(progress, Phase):
            self._phase = progress.name
        elif isinstance(progress, ModelRound):
            self._round, self._fresh = progress, 0
        elif isinstance(progress, TrialRecorded):
            self._fresh += 1
        else:
            return
        self._tell()

    def _tell(self) -> None:
        now_s = self._clock()
        if now_s - self._said_s < _EVERY_S:
            return
        self._said_s = now_s
        text = f"{self._phase}, {duration(now_s - self._begin_s)}"
        if self._round is not None:
            done = self._round.trials + self._fresh
            text += (
                f", {done} of {self._round.budget} trials, "
                f"{self._round.searched} of {self._round.kernels} kernels"
            )
        self._say(text)
