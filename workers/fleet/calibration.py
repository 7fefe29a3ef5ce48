"""Calibration bands of lanes: a lane that leaves its band is drained until it is back.

A candidate timed on a lane that has drifted would pass for a bad schedule, or for a good
one. Bands are learned at the start. Pure, on the caller's clock: the driver times the
kernel (`tuner.measure.calibration`) and carries out the decisions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from tuner.workers.fleet.messages import Calibrated

EVERY_S = 30.0  # between two calibrations of a lane in its band; each takes some 8 ms a core
SOON_S = 2.0  # while a band is being learned, and after a calibration outside of it
LEARNED = 5  # calibrations from which a band is learned
# Half width of a band relative to its middle: repeated timings on an undisturbed lane
# differ by a few percent.
TOLERANCE = 0.15
# A band is at least so many times the spread of the calibrations it was learned from.
SPREADS = 3.0
PERSISTENT = 3  # calibrations in a row: outside, the lane has drifted; inside, it is back
# Time drained after which the only lane in service gets a new band: nothing is measured until
# then, and a machine that is shared may never be as it was.
PATIENCE_S = 20.0


@dataclass(slots=True, eq=False)
class _Lane:
    due_s: float
    good_s: float  # when it was last known to be in its band
    middle_s: tuple[float, ...] = ()  # by core; empty while the band is being learned
    tolerance: float = TOLERANCE
    recent: deque[tuple[float, ...]] = field(default_factory=lambda: deque(maxlen=LEARNED))
    inside: int = 0  # calibrations in a row
    outside: int = 0
    drained_s: float | None = None  # since when

    def learn(self) -> None:
        """Sets the band around the recent calibrations."""
        cores = list(zip(*self.recent, strict=True))
        self.middle_s = tuple(median(core) for core in cores)
        spreads = [
            median(abs(seconds / middle - 1.0) for seconds in core)
            for core, middle in zip(cores, self.middle_s, strict=True)
        ]
        self.tolerance = max(TOLERANCE, SPREADS * max(spreads))
        self.inside = self.outside = 0
        self.drained_s = None


class Calibrator:
    """The bands of all lanes. Not thread-safe. Moments are seconds of a steady clock."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}

    def add(self, lane: str, now_s: float) -> None:
        """Adds a lane that joined, or whose runner was replaced; its band is kept."""
        self._lanes.setdefault(lane, _Lane(due_s=now_s, good_s=now_s)).due_s = now_s

    def remove(self, lane: str) -> None:
        self._lanes.pop(lane, None)

    def due(self, now_s: float) -> list[str]:
        """The lanes to be calibrated now; each is returned once."""
        due = [name for name, lane in self._lanes.items() if lane.due_s <= now_s]
        for name in due:
            self._lanes[name].due_s = now_s + EVERY_S
        return due

    @property
    def next_s(self) -> float | None:
        """When the next calibration is due."""
        return min((lane.due_s for lane in self._lanes.values()), default=None)

    def drained(self, lane: str) -> bool:
        return lane in self._lanes and self._lanes[lane].drained_s is not None

    def note(self, name: str, seconds: Sequence[float], now_s: float) -> Calibrated | None:
        """Takes a calibration of a lane, seconds by core; None for a lane that is gone."""
        lane = self._lanes.get(name)
        if lane is None:
            return None
        lane.recent.append(tuple(seconds))
        if not lane.middle_s:
            return self._learning(name, lane, now_s)
        median_s, middle_s = max(
            zip(seconds, lane.middle_s, strict=True), key=lambda pair: abs(pair[0] / pair[1] - 1.0)
        )
        in_band = abs(median_s / middle_s - 1.0) <= lane.tolerance
        lane.inside, lane.outside = (lane.inside + 1, 0) if in_band else (0, lane.outside + 1)
        doubtful = lane.drained_s is not None
        if in_band and lane.inside >= PERSISTENT:
            lane.drained_s = None
        elif lane.outside >= PERSISTENT and lane.drained_s is None:
            doubtful, lane.drained_s = True, now_s
            # Faster than its band, which was learned while the lane was disturbed.
            if median_s < middle_s:
                lane.learn()
        elif (
            lane.drained_s is not None
            and now_s - lane.drained_s > PATIENCE_S
            and self._is_needed(name)
        ):
            lane.learn()
        suspect_since_s = lane.good_s if doubtful else None
        if lane.drained_s is None and (in_band or doubtful):
            lane.good_s = now_s
        lane.due_s = now_s + (EVERY_S if in_band and lane.drained_s is None else SOON_S)
        return Calibrated(
            lane=name,
            at_s=now_s,
            median_s=median_s,
            expected_s=middle_s,
            in_band=in_band,
            drained=lane.drained_s is not None,
            suspect_since_s=suspect_since_s,
        )

    def _learning(self, name: str, lane: _Lane, now_s: float) -> Calibrated:
        if len(lane.recent) == LEARNED:
            lane.learn()
        slowest = max(lane.recent[-1])
        lane.good_s, lane.due_s = now_s, now_s + (EVERY_S if lane.middle_s else 0.0)
        return Calibrated(
            lane=name,
            at_s=now_s,
            median_s=slowest,
            expected_s=slowest,
            in_band=True,
            drained=False,
            suspect_since_s=None,
        )

    def _is_needed(self, name: str) -> bool:
        """Whether no other lane is in service."""
        return all(
            lane.drained_s is not None for other, lane in self._lanes.items() if other != name
        )
