"""Calibration of the lanes while they work."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tuner.workers.fleet.calibration import Calibrator
from tuner.workers.fleet.messages import Calibrated
from tuner.workers.fleet.notices import LaneDrift
from tuner.workers.fleet.pipeline import Pipeline


class LaneCalibration:
    """The calibrator, its results until they are reported, and the drained lanes."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._calibrator = Calibrator()
        self._results: list[Calibrated] = []
        # Lanes to be calibrated once their borrowers are done.
        self._waiting: dict[str, None] = {}

    def add(self, lane: str) -> None:
        self._calibrator.add(lane, time.time())

    def remove(self, worker: str) -> None:
        self._calibrator.remove(worker)
        self._waiting.pop(worker, None)

    def drained(self, lane: str) -> bool:
        return self._calibrator.drained(lane)

    @property
    def next_s(self) -> float | None:
        """When the next calibration is due, on the monotonic clock."""
        next_s = self._calibrator.next_s
        return None if next_s is None else time.monotonic() + next_s - time.time()

    def due(self) -> list[str]:
        """Lanes to be calibrated now, without those whose borrowers still build."""
        self._waiting |= dict.fromkeys(self._calibrator.due(time.time()))
        vacated = [lane for lane in self._waiting if self._pipeline.vacated(lane)]
        for lane in vacated:
            del self._waiting[lane]
        return vacated

    def note(self, lane: str, seconds: Sequence[float]) -> LaneDrift | None:
        """Takes a lane's calibration; returns a notice if the lane left its band or is back."""
        self._pipeline.shared(lane)
        before = self._calibrator.drained(lane)
        result = self._calibrator.note(lane, seconds, time.time()) if seconds else None
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
