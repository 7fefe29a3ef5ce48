"""A searcher's record of its points: handed out, told, and how fast they were.

All strategies share it. So none proposes a point twice, and all learn from equal labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.model import Vector
from tuner.measure.gpu.resources import Resources
from tuner.measure.objective import FASTEST, Goal
from tuner.measure.outcome import Failed, FailureKind, Timed, Trial
from tuner.search.domain import Domain, Keys
from tuner.spaces.core.space import Points

Row = NDArray[np.int32]  # one point, shape (knobs,)


class Ledger:
    """The points of one search."""

    def __init__(self, domain: Domain, goal: Goal = FASTEST) -> None:
        self.domain = domain
        self._goal = goal
        self._told: set[int] = set()  # keys of all trials told, infrastructure included
        self._handed_out: set[int] = set()
        self._points: list[Row] = []  # of the trials that teach, in the order told
        # Seconds of one call at the usual pace, where the goal is time; None for a failure of
        # the candidate.
        self._costs_s: list[float | None] = []
        self.resources: list[Resources | None] = []  # of candidates built for a GPU

    def __len__(self) -> int:
        """The number of trials that teach."""
        return len(self._points)

    @property
    def remaining(self) -> int:
        """Points of the domain neither told nor handed out; at least 0."""
        return max(0, self.domain.size - len(self._told | self._handed_out))

    def tell(self, trial: Trial) -> bool:
        """Enters a trial and returns whether it teaches something new."""
        if not trial.config:
            return False
        point = self.domain.space.point(trial.config)
        key = int(self.domain.keys(point[None, :])[0])
        if key in self._told:
            return False
        self._told.add(key)
        self._handed_out.discard(key)
        match trial.outcome:
            case Timed() as timed:
                self._costs_s.append(self._goal.search_cost_s(timed.undisturbed_s, trial.figures))
            case Failed(kind=FailureKind.INFRASTRUCTURE):
                return False
            case _:
                self._costs_s.append(None)
        self._points.append(point)
        self.resources.append(trial.resources)
        return True

    def hand_out(self, point: Row) -> bool:
        """Marks a point as in flight. False if it was told or handed out before."""
        key = int(self.domain.keys(point[None, :])[0])
        if key in self._told or key in self._handed_out:
            return False
        self._handed_out.add(key)
        return True

    def stack(self, points: Sequence[Row]) -> Points:
        """The points as one matrix, shape (n, knobs)."""
        width = len(self.domain.space.knobs)
        return np.stack(points).astype(np.int32) if len(points) else np.zeros((0, width), np.int32)

    @property
    def last(self) -> Row:
        """The latest point that teaches."""
        return self._points[-1]

    @property
    def points(self) -> Points:
        """Points that teach, in the order told, shape (n, knobs)."""
        return self.stack(self._points)

    @property
    def labels(self) -> Vector:
        """The least cost over each point's, in (0, 1], shape (n,); 0 for failures.

        The cost is the time, unless the goal has more objectives.
        """
        least = min((cost for cost in self._costs_s if cost is not None), default=0.0)
        return np.array(
            [0.0 if cost is None else least / cost for cost in self._costs_s], np.float32
        )

    @property
    def tried(self) -> Keys:
        """Keys of all trials told, sorted."""
        return np.sort(np.array(list(self._told), np.uint64))
