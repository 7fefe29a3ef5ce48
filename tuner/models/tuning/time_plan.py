"""How the time of tuning a model is divided: first rounds, later rounds, promotions.

Promotions come last, and their time must be left. It is estimated from the number of
kernels and what a trial of each has taken in this very job, so that it holds on a slow or
busy machine too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median_low

from tuner.models.tuning.task_scheduler import FIRST_ROUND

# Seconds of a trial before any was measured. It counts beside those that were: the first kernel
# alone, whose reference may take half a minute, does not speak for all.
_TRIAL_S = 1.0
# What a contestant of a promotion takes, in trials of its kernel and processes, before any was
# measured: it is checked and timed in three processes, and built again where it was long ago.
_CONTESTANT = 1.0
_PROCESSES_S = 0.6  # on top of a trial: three fresh processes, and what they verify by
# Promotions have more than one finalist while they take no more than this of all the time.
_PROMOTIONS = 0.3
MOST_FINALISTS = 4
# Kernels with trials, of each so many of which one is promoted before the others to learn what
# that takes, and how often.
_MANY, _PROBES = 8, 3
# What was said of lateness is compared with what promotions show once so many kernels without a
# round had theirs, and at each double number; it is said again where it is off by so many
# seconds and by so large a part.
_SHOWN_BY, _OFF_S, _OFF = 4, 10.0, 0.25
# Most trials of a first round where the time has a bound: the estimate's favourites are
# mostly near the best, and what every kernel has had is what the later rounds go by.
_BOUNDED_FIRST = 2


@dataclass(slots=True, kw_only=True)
class _Pace:
    """What was measured of one kernel."""

    trials: int = 0
    seconds: float = 0.0
    promoted: bool = False


@dataclass(slots=True, kw_only=True)
class TimePlan:
    """The time of one job, which began at `begin_s` of the clock.

    Without `seconds` there is no bound: rounds are whole, promotions have all finalists.
    """

    seconds: float | None
    kernels: int
    clock: Callable[[], float]
    begin_s: float
    # Kernels that the model can do without: one without trials is not promoted.
    optional: frozenset[int] = frozenset()
    # Kernels of which a verified one is promoted: it takes part in their races, and stays where
    # there is no time for a trial.
    stored: frozenset[int] = frozenset()
    # Seconds behind the job that its command leaves out where the job is late.
    spare_s: float = 0.0
    said_late_s: float | None = None  # what was said of `late_s`
    _paces: dict[int, _Pace] = field(init=False, default_factory=dict)
    # of promotions: seconds, and the trials that their contestants are worth
    _promoted: tuple[float, float] = field(init=False, default=(0.0, 0.0))
    _promotions: int = field(init=False, default=0)
    _singles: int = field(init=False, default=0)  # of them, of kernels without a round

    def __post_init__(self) -> None:
        self._paces = {number: _Pace() for number in range(self.kernels)}

    @property
    def left_s(self) -> float | None:
        """Seconds until the job is to be done, negative when it is late."""
        return None if self.seconds is None else self.seconds - (self.clock() - self.begin_s)

    def searched(self, kernel: int, trials: int, seconds: float) -> None:
        """Notes a round: so many new trials in so many seconds, for which it is promoted anew."""
        pace = self._paces[kernel]
        pace.trials, pace.seconds = pace.trials + trials, pace.seconds + seconds
        pace.promoted = pace.promoted and not trials

    def promoted(self, kernel: int, finalists: int, seconds: float) -> None:
        """Notes a promotion of so many finalists, with the trial of a kernel that had none."""
        before_s, before = self._promoted
        contestants = finalists + (kernel in self.stored)
        worth = contestants * (self._trial_s(kernel) + _PROCESSES_S)
        if not self.tried(kernel):
            self._singles += 1
            seconds = max(seconds - self._trial_s(kernel), 0.0)
        self._promoted = before_s + seconds, before + worth
        self._promotions += 1
        self._paces[kernel].promoted = True

    def skipped(self, kernel: int) -> None:
        """Notes that a kernel is not to be promoted."""
        self._paces[kernel].promoted = True

    def tried(self, kernel: int) -> bool:
        """Whether a kernel has had trials."""
        return self._paces[kernel].trials > 0

    def keeps(self, kernel: int) -> bool:
        """Whether the stored kernel stays, as far as is known by now."""
        return kernel in self.stored and not self.tried(kernel)

    def is_promoted(self, kernel: int) -> bool:
        """Whether a kernel was promoted, or is not to be."""
        return self._paces[kernel].promoted

    def probe(self) -> int | None:
        """A kernel to promote between rounds, because it tells what the others will take.

        Where each is to have one finalist, for the time is short: a middling one, by its trials,
        of each so many that had their first, a few times. It may be searched and promoted again.
        """
        if self.left_s is None or self._planned_finalists() > 1:
            return None
        tried = [kernel for kernel in self._paces if self.tried(kernel)]
        left = [each for each in tried if not self.is_promoted(each) and each not in self.optional]
        if self._promotions >= min(len(tried) // _MANY, _PROBES) or not left:
            return None
        return sorted(left, key=self._trial_s)[len(left) // 2]

    def search_s(self) -> float | None:
        """Seconds that may go to rounds now, so that all kernels can be promoted.

        Before anything was measured, half of what is left: the first round shows the pace.
        """
        left = self.left_s
        if left is None:
            return None
        if not any(pace.trials for pace in self._paces.values()):
            return left / 2
        return left - self._reserve_s(self._planned_finalists())

    def late_s(self) -> float:
        """Seconds by which single trials of the kernels without, and promotions of one finalist
        each, outlast the time and what is left out then; 0 without a bound."""
        if self.left_s is None:
            return 0.0
        return max(self._reserve_s(1) + self._untried_s - self.left_s - self.spare_s, 0.0)

    def changed_late_s(self) -> float | None:
        """`late_s` where promotions have shown that what was said of it is far off."""
        is_due = self._singles >= _SHOWN_BY and not self._singles & (self._singles - 1)
        if self.said_late_s is None or not is_due:
            return None
        late_s = self.late_s()
        far = abs(late_s - self.said_late_s) > max(_OFF_S, _OFF * self.said_late_s)
        return late_s if far else None

    def first_trials(self, fresh: int) -> int:
        """Trials of the next first round, when so many kernels have had none.

        Few where the time has a bound: a schedule of every kernel is worth more than six of
        some.
        """
        left = self.search_s()
        if left is None:
            return FIRST_ROUND
        affordable = int(left / fresh / self._usual_trial_s)
        return min(max(affordable, 1), _BOUNDED_FIRST)

    def finalists(self, kernel: int) -> int | None:
        """How many trials race at most in the promotion of this kernel, which is the next."""
        left = self.left_s
        if left is None:
            return None
        left -= self._untried_s
        affordable = left / max(self._reserve_s(MOST_FINALISTS), 1e-9)  # of what all may have
        most = self._most_finalists(kernel, MOST_FINALISTS)
        return max(int(min(affordable, 1.0) * most), 1)

    def _planned_finalists(self) -> int:
        assert self.seconds is not None
        for finalists in range(MOST_FINALISTS, 1, -1):
            if self._reserve_s(finalists) <= _PROMOTIONS * self.seconds:
                return finalists
        return 1

    def _reserve_s(self, finalists: int) -> float:
        """Seconds of the promotions to come, with so many finalists.

        A kernel without trials has one.
        """
        return sum(
            self._contestant_s(kernel)
            * (self._most_finalists(kernel, finalists) + (kernel in self.stored))
            for kernel in self._coming
        )

    @property
    def _untried_s(self) -> float:
        """Seconds of the trials that promotions to come begin with."""
        return self._usual_trial_s * sum(not self.tried(kernel) for kernel in self._coming)

    @property
    def _coming(self) -> list[int]:
        """The kernels that are still to be promoted, as far as is known by now."""
        left_out = self.optional | self.stored  # where they have no trials
        return [
            kernel
            for kernel, pace in self._paces.items()
            if not pace.promoted and (pace.trials or kernel not in left_out)
        ]

    def _most_finalists(self, kernel: int, finalists: int) -> int:
        return max(min(finalists, self._paces[kernel].trials), 1)

    @property
    def _contestant_trials(self) -> float:
        seconds, worth = self._promoted
        return seconds / worth if worth else _CONTESTANT

    def _contestant_s(self, kernel: int) -> float:
        return (self._trial_s(kernel) + _PROCESSES_S) * self._contestant_trials

    def _trial_s(self, kernel: int) -> float:
        pace = self._paces[kernel]
        return pace.seconds / pace.trials if pace.trials else self._usual_trial_s

    @property
    def _usual_trial_s(self) -> float:
        """Seconds of a trial of most kernels."""
        paces = [pace.seconds / pace.trials for pace in self._paces.values() if pace.trials]
        return median_low([*paces, _TRIAL_S])
