"""What the best of a search's first candidates loses to the best that is known.

The regret of a search after n candidates is its best time so far over the best known
time of the workload, minus 1. Of a new search, the regret after n is at most the
⌈0.9(k+1)⌉-th smallest of k earlier ones, nine times of ten (split conformal prediction,
arXiv 2107.07511): that holds of any distribution, as long as the workloads are alike.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path

import numpy as np

from tuner.errors import UsageError

CONFIDENCE = 0.9  # of a bound
HORIZON = 32  # candidates up to which a search has a bound
# Candidates that a search must have had to teach: of one that was shorter, the best is not
# what is to be had.
TAUGHT_BY = 2 * HORIZON
LEAST = ceil(CONFIDENCE / (1 - CONFIDENCE) - 1e-9)  # searches from which there is a bound
_MOST = 9.0  # regret; also of a search of whose candidates none was right yet
_RECORDED = Path(__file__).with_name("recorded_regrets.json")

Curve = tuple[float, ...]  # the regret after 1, 2, … HORIZON candidates, never rising


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """What is expected of a search after so many candidates, as shares of the best time."""

    median: float  # that half of the searches stay below
    within: float  # that CONFIDENCE of them stay below


def regret_curve(seconds: Sequence[float | None], best_s: float) -> Curve:
    """The curve of a search whose candidates took `seconds`, None for a failure.

    A search that ended early stays where it ended. Raises UsageError for no candidates
    or a best time that is not positive.
    """
    if not seconds or not best_s > 0:
        raise UsageError(
            f"{len(seconds)} candidates beside a best time of {best_s} s; a curve has one "
            f"candidate or more, and a best time above 0"
        )
    times = np.array([np.inf if value is None else value for value in seconds[:HORIZON]])
    best = np.minimum.accumulate(times)
    regrets = np.clip(best / best_s - 1.0, 0.0, _MOST)
    return tuple(np.pad(regrets, (0, HORIZON - len(regrets)), mode="edge").tolist())


class RegretBounds:
    """Bounds from the curves of searches that went on to `TAUGHT_BY` candidates or more."""

    def __init__(self, curves: Sequence[Curve]) -> None:
        """Raises UsageError for fewer than `LEAST` curves."""
        if len(curves) < LEAST:
            raise UsageError(f"{len(curves)} searches teach no bound; it takes {LEAST} or more")
        ordered = np.sort(np.array(curves, np.float64), axis=0)
        self.searches = len(ordered)
        self._median = np.median(ordered, axis=0)
        self._within = ordered[ceil(CONFIDENCE * (len(ordered) + 1) - 1e-9) - 1]

    def after(self, candidates: int) -> Regret | None:
        """None for none, and beyond the horizon, where the searches themselves end."""
        if not 1 <= candidates <= HORIZON:
            return None
        place = candidates - 1
        return Regret(median=float(self._median[place]), within=float(self._within[place]))

    def candidates_for(self, within: float) -> int:
        """The fewest candidates after which the bound is so low; else those of its lowest."""
        aim = max(within, float(self._within[-1]))
        return int(np.argmax(self._within <= aim)) + 1


@cache
def recorded_curves() -> tuple[Curve, ...]:
    """Those of searches on recorded tables, for targets where few were tuned yet.

    Written by `python -m benchmarks.search.first`.
    """
    document = json.loads(_RECORDED.read_text(encoding="utf-8"))
    return tuple(tuple(curve) for curve in document["curves"].values())
