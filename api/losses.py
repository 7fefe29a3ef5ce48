"""What kernels of few trials lose to the best known, as earlier searches of the target had it."""

from __future__ import annotations

from threading import Lock

from tuner.api.schemas import FurtherTrialsAnswer, LossAnswer
from tuner.db import history, jobs, promoted_kernels
from tuner.db.engine import Session
from tuner.db.kernels import TRADEOFF, Kernel
from tuner.measure.cache import WARM
from tuner.search.regret import (
    CONFIDENCE,
    HORIZON,
    LEAST,
    TAUGHT_BY,
    RegretBounds,
    recorded_curves,
    regret_curve,
)

ENOUGH = 0.01  # a loss that nobody needs to lower
_SHOWN = 4  # digits after the point


class _Learned:
    """The bounds of a target and thread count, and the rate of its searches."""

    def __init__(
        self, stamp: promoted_kernels.Stamp, session: Session, target: str, threads: int
    ) -> None:
        self.stamp = stamp
        searches = history.searches_on(session, target, threads, least=TAUGHT_BY, first=HORIZON)
        self.recorded = len(searches) < LEAST
        self.bounds = RegretBounds(
            recorded_curves()
            if self.recorded
            else [regret_curve(search.seconds, search.best_s) for search in searches]
        )
        rates = sorted(search.s_per_trial for search in searches if search.s_per_trial > 0)
        self.s_per_trial = None if self.recorded or not rates else rates[len(rates) // 2]


class Losses:
    """Answers losses, and keeps what it learned until a kernel is promoted. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._learned: dict[tuple[str, int], _Learned] = {}

    def of_kernel(self, session: Session, kernel: Kernel) -> LossAnswer | None:
        """None after a long search, of what was prepared from a neighbour's schedule, of
        tradeoffs, and of cold caches, which no bound was learned of."""
        if kernel.cache != WARM or kernel.state == TRADEOFF:
            return None
        place = (kernel.target, kernel.threads)
        count = history.candidates_tried(session, kernel.workload, *place)
        if count == 0 and kernel.job is not None:
            job = jobs.get(session, kernel.job)
            # The estimate's best is one candidate; from a neighbour none is its own.
            count = int(job.kind == jobs.PREPARE and not job.settings)
        return self.after(session, *place, candidates=count)

    def after(
        self, session: Session, target: str, threads: int, *, candidates: int
    ) -> LossAnswer | None:
        """Of the best of so many candidates of a new search."""
        if not 1 <= candidates <= HORIZON:
            return None
        learned = self._of(session, target, threads)
        regret = learned.bounds.after(candidates)
        assert regret is not None, "within the horizon there is a bound"
        return LossAnswer(
            candidates=candidates,
            median=round(regret.median, _SHOWN),
            within=round(regret.within, _SHOWN),
            confidence=CONFIDENCE,
            searches=learned.bounds.searches,
            recorded=learned.recorded,
            more=_more(learned, candidates, regret.within),
        )

    def _of(self, session: Session, target: str, threads: int) -> _Learned:
        place, stamp = (target, threads), promoted_kernels.stamp_of(session, target, threads)
        with self._lock:
            kept = self._learned.get(place)
        if kept is not None and kept.stamp == stamp:
            return kept
        learned = _Learned(stamp, session, target, threads)
        with self._lock:
            self._learned[place] = learned
        return learned


def _more(learned: _Learned, candidates: int, within: float) -> FurtherTrialsAnswer | None:
    """To a loss of `ENOUGH`, or the least there is a bound for."""
    needed = learned.bounds.candidates_for(ENOUGH)
    then = learned.bounds.after(needed)
    if then is None or needed <= candidates or then.within >= within:
        return None
    trials = needed - candidates
    return FurtherTrialsAnswer(
        trials=trials,
        seconds=None if learned.s_per_trial is None else round(trials * learned.s_per_trial, 1),
        within=round(then.within, _SHOWN),
    )
