"""Calibration of the lanes while they work."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tuner.workers.fleet.calibration import Calibrator
from tuner.workers.fleet.messages import Calibrated
from tuner.workers.fleet.notices import LaneDrift
from tuner.workers.fleet.pipeline import Pipeline


class LaneCalibration:
    """The calibrator, its results until they are reported, and the drained lanes.

    What is due, and since when a lane is drained, goes by a clock that never jumps: set
    back, the wall clock would leave a drained lane alone for as long.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pipeline = pipeline
        self._steady_s = steady_s
        self._calibrator = Calibrator()
        self._results: list[Calibrated] = []
        # Lanes to be calibrated once their borrowers are done.
        self._waiting: dict[str, None] = {}

    def add(self, lane: str) -> None:
        self._calibrator.add(lane, self._steady_s())

    def remove(self, worker: str) -> None:
        self._calibrator.remove(worker)
        self._waiting.pop(worker, None)

    def drained(self, lane: str) -> bool:
        return self._calibrator.drained(lane)

    @property
    def next_s(self) -> float | None:
        """When the next calibration is due, on the monotonic clock."""
        return self._calibrator.next_s

    def due(self) -> list[str]:
        """Lanes to be calibrated now, without those whose borrowers still build."""
        self._waiting |= dict.fromkeys(self._calibrator.due(self._steady_s()))
        vacated = [lane for lane in self._waiting if self._pipeline.vacated(lane)]
        for lane in vacated:
            del self._waiting[lane]
        return vacated

    def note(self, lane: str, seconds: Sequence[float]) -> LaneDrift | None:
        """Takes a lane's calibration; returns a notice if the lane left its band or is back."""
        self._pipeline.shared(lane)
        before = self._calibrator.drained(lane)
        now_s = self._steady_s()
        result = self._calibrator.note(lane, seconds, now_s) if seconds else None
        if result is None:
            return None
        self._results.append(result)
        if result.drained is before:
            return None
        self._pipeline.drain(lane, drained=result.drained)
        if not result.drained:
            return LaneDrift(message=f"lane {lane} measures again")
        factor = result.median_s / result.expected_s
        return LaneDrift(
            message=f"lane {lane} is drained: its calibration kernel takes {factor:.2f} times "
            f"what it should"
        )

    def collect(self) -> tuple[Calibrated, ...]:
        """The results since the last call."""
        results, self._results = tuple(self._results), []
        return results
