"""Which kernel of a model is tuned next: each in turn first, then the one whose next
trials promise most for the model's time.

The promise is the gradient of Ansor's task scheduler (Zheng et al., "Ansor", OSDI 2020,
section 6.2): what a kernel gained lately, and what it could gain at best, bounded by
the rate that kernels like it reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuner.workload.expression import Expression

# trials of a kernel's first turn: its default schedule, then what the estimate of
# cycles likes best
FIRST = 6
TURN = (
    32  # of each later one, fewer while the kernel has had few: never more than trebles its trials
)
_LATELY = 0.2  # weight of what was gained lately; the rest is what could be gained, as in Ansor
_SIMILAR = 2.0  # a kernel is not expected to reach more than this times the rate of those like it
_WINDOW = 2  # turns that count as lately


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One kernel of the model and how far it has come."""

    calls: int  # in one call of the model
    flops: int
    kind: str  # kernels of one kind are compared
    trials: int = 0
    best_s: tuple[float, ...] = ()  # after each turn
    trials_at: tuple[int, ...] = ()  # as many as were done after each turn
    finished: bool = (
        False  # nothing more is to be gained: its space is exhausted, or it is at the roofline
    )

    def after(self, trials: int, best_s: float | None, *, finished: bool) -> Subject:
        """The subject after a turn that ended with so many trials in all. Without any
        time it is not expected to get one."""
        if best_s is None:
            return replace(self, trials=trials, finished=True)
        return replace(
            self,
            trials=trials,
            best_s=(*self.best_s, best_s),
            trials_at=(*self.trials_at, trials),
            finished=finished or trials <= self.trials,
        )

    @property
    def seconds(self) -> float:
        """Its part of the model's time."""
        return self.calls * self.best_s[-1] if self.best_s else 0.0


def kind_of(expression: Expression) -> str:
    """The same for expressions whose heaviest stage has as many axes of each sort."""
    heaviest = max(expression.stages, key=lambda stage: stage.points)
    return f"{len(heaviest.axes)}:{len(heaviest.reduce_axes)}"


def turn_of(subject: Subject) -> int:
    """Trials of the subject's next turn: short ones first, so that what is left of a
    small budget goes where it tells most."""
    return min(TURN, 2 * subject.trials) if subject.trials else FIRST


def next_turn(subjects: Sequence[Subject]) -> int | None:
    """The position of the subject that is to be tuned next; None when all are finished.
    Those never tuned come first, by work."""
    left = [position for position, subject in enumerate(subjects) if not subject.finished]
    fresh = [position for position in left if not subjects[position].best_s]
    if fresh:
        return max(
            fresh,
            key=lambda position: (subjects[position].calls * subjects[position].flops, -position),
        )
    return max(
        left,
        key=lambda position: (gain_per_trial(subjects[position], subjects), -position),
        default=None,
    )


def gain_per_trial(subject: Subject, subjects: Sequence[Subject]) -> float:
    """Seconds of the model's time that a trial is expected to save; never below 0."""
    best_s, trials = subject.best_s[-1], max(subject.trials, 1)
    back = min(_WINDOW, len(subject.best_s) - 1)
    lately = 0.0
    if back:
        spent = max(subject.trials_at[-1] - subject.trials_at[-1 - back], 1)
        lately = (subject.best_s[-1 - back] - best_s) / spent
    rates = [
        other.flops / other.best_s[-1]
        for other in subjects
        if other.kind == subject.kind and other.best_s
    ]
    reachable_s = subject.flops / (_SIMILAR * max(rates)) if max(rates, default=0.0) > 0 else 0.0
    ahead = max(min(best_s, best_s - reachable_s), 0.0) / trials
    return subject.calls * max(_LATELY * lately + (1 - _LATELY) * ahead, 0.0)
