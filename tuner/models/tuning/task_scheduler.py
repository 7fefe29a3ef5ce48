"""Which kernel of a model gets the next round of trials.

Each kernel has a first round. After that the round goes to the kernel whose next trials
promise to save most of the model's time. The promise is the gradient of Ansor's task
scheduler (Zheng et al., "Ansor", OSDI 2020, section 6.2). It combines what a kernel
gained lately with what it could gain at best. The latter is bounded by the rate that
similar kernels reach.

Some work can be done by several kernels: a node under strict or fast numerics, a chain of
nodes and siblings by one kernel or by one for each. Siblings as one need other kernels of
the nodes that read them beside it. What the model needs has its first rounds before
all else, so that it can always be assembled. What is slower saves nothing until it is
faster than what does the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from tuner.workload.expression import Expression

# Trials of a kernel's first round: the favourites of the estimate of cycles.
FIRST_ROUND = 6
# Most trials of a later round. A round is shorter while the kernel has had few trials:
# it never more than trebles them.
ROUND = 32
_LATELY = 0.2  # weight of the recent gain; the rest is the possible gain, as in Ansor
# A kernel is expected to reach at most this times the rate of similar kernels.
_SIMILAR = 2.0
_WINDOW = 2  # rounds that count as recent


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProgress:
    """One kernel of the model and how far its tuning has come."""

    calls: int  # in one call of the model
    flops: int
    kind: str  # kernels of one kind are compared
    key: str = ""  # of its workload
    # Keys of the kernels whose work a call of it does, once each; empty for a kernel that
    # the model cannot do without.
    instead_of: tuple[str, ...] = ()
    # Keys of the kernels that have to be called beside it for that, once each.
    beside: tuple[str, ...] = ()
    trials: int = 0
    best_s: tuple[float, ...] = ()  # seconds of the best trial, after each round
    trials_at: tuple[int, ...] = ()  # trials in all, after each round
    # Nothing more is to be gained: the space is exhausted, or the time is at the roofline.
    finished: bool = False

    def after(self, trials: int, best_s: float | None, *, finished: bool) -> KernelProgress:
        """The progress after a round that ended with `trials` in all.

        Without a time (`best_s` is None) the kernel is finished: more trials are not
        expected to give one.
        """
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
    def optional(self) -> bool:
        """Whether others compute the same: a fast variant, a chain, siblings."""
        return bool(self.instead_of)

    @property
    def is_fresh(self) -> bool:
        """Whether the model needs it and its first round is to come."""
        return not (self.best_s or self.finished or self.optional)

    @property
    def leads(self) -> bool:
        """Whether it counts for what is called beside it, too."""
        return all(self.key < other for other in self.beside)

    @property
    def seconds(self) -> float:
        """Its part of the model's time."""
        return self.calls * self.best_s[-1] if self.best_s else 0.0


def kind_of(expression: Expression) -> str:
    """The kind of a kernel: how many spatial and reduction axes its heaviest stage has."""
    heaviest = max(expression.stages, key=lambda stage: stage.points)
    return f"{len(heaviest.axes)}:{len(heaviest.reduce_axes)}"


def round_trials(kernel: KernelProgress) -> int:
    """Trials of the kernel's next round.

    Early rounds are short, so that the rest of a small budget goes where it helps most.
    """
    return min(ROUND, 2 * kernel.trials) if kernel.trials else FIRST_ROUND


def next_kernel(kernels: Sequence[KernelProgress]) -> int | None:
    """The position of the kernel to tune next; None when all are finished.

    Kernels without a round come first, those that the model needs before the others, the
    one with the most work before the others.
    """
    left = [position for position, kernel in enumerate(kernels) if not kernel.finished]
    fresh = [position for position in left if not kernels[position].best_s]
    if fresh:
        return max(
            fresh,
            key=lambda position: (
                not kernels[position].optional,
                kernels[position].calls * kernels[position].flops,
                -position,
            ),
        )
    return max(
        left,
        key=lambda position: (gain_per_trial(kernels[position], kernels), -position),
        default=None,
    )


def model_s(kernels: Sequence[KernelProgress]) -> float:
    """Seconds of one call of the model, by the best trials of its kernels.

    Where others compute the same in less time, these count.
    """
    needed = [kernel for kernel in kernels if not kernel.optional]
    total_s = sum(kernel.seconds for kernel in needed)
    fastest = _times(kernels)
    # Variants of single kernels first: they are what a chain is compared with.
    for kernel in sorted(kernels, key=lambda kernel: len(kernel.instead_of)):
        apart_s = _together(kernel.instead_of, fastest)
        own_s = kernel.best_s[-1] + _beside_s(kernel, kernels) if kernel.best_s else inf
        if kernel.optional and kernel.leads and own_s < apart_s < inf:
            total_s -= kernel.calls * (apart_s - own_s)
            if len(kernel.instead_of) == 1:
                fastest[kernel.instead_of[0]] = kernel.best_s[-1]
    return total_s


def _times(kernels: Sequence[KernelProgress]) -> dict[str, float]:
    """The best times of the kernels that the model needs, by their keys."""
    return {
        kernel.key: kernel.best_s[-1] for kernel in kernels if kernel.best_s and not kernel.optional
    }


def _together(keys: Sequence[str], times: Mapping[str, float]) -> float:
    """Seconds of one call of each; infinite where one has no time."""
    return sum(times.get(key, inf) for key in keys)


def _beside_s(kernel: KernelProgress, kernels: Sequence[KernelProgress]) -> float:
    """Seconds of what has to be called beside the kernel; infinite where one has no time."""
    times = {other.key: other.best_s[-1] for other in kernels if other.best_s}
    return _together(kernel.beside, times)


def _rivals_s(kernel: KernelProgress, kernels: Sequence[KernelProgress]) -> float:
    """What a call of the kernel must take less than, for the model to be faster by it.

    Infinite where nothing else computes the same.
    """
    times = _times(kernels)
    limits, beside_s = [inf], _beside_s(kernel, kernels)
    if kernel.optional and beside_s < inf:
        limits.append(_together(kernel.instead_of, times) - beside_s)
    for other in kernels:
        if other.best_s and kernel.key in other.instead_of:
            rest = list(other.instead_of)
            rest.remove(kernel.key)
            own_s = other.best_s[-1] + _beside_s(other, kernels)
            limits.append(own_s - _together(rest, times) if own_s < inf else inf)
    # A chain whose other kernels have no time says nothing of this one.
    return min(limit for limit in limits if limit > -inf)


def gain_per_trial(kernel: KernelProgress, kernels: Sequence[KernelProgress]) -> float:
    """Seconds of the model's time that one more trial is expected to save, at least 0."""
    trials = max(kernel.trials, 1)
    best_s = min(kernel.best_s[-1], _rivals_s(kernel, kernels))  # what the model takes now
    back = 0 if best_s < kernel.best_s[-1] else min(_WINDOW, len(kernel.best_s) - 1)
    recent_s = 0.0
    if back:
        spent = max(kernel.trials_at[-1] - kernel.trials_at[-1 - back], 1)
        recent_s = (kernel.best_s[-1 - back] - best_s) / spent
    rates = [
        other.flops / other.best_s[-1]
        for other in kernels
        if other.kind == kernel.kind and other.best_s
    ]
    reachable_s = kernel.flops / (_SIMILAR * max(rates)) if max(rates, default=0.0) > 0 else 0.0
    possible_s = max(min(best_s, best_s - reachable_s), 0.0) / trials
    return kernel.calls * max(_LATELY * recent_s + (1 - _LATELY) * possible_s, 0.0)


def needless(kernels: Sequence[KernelProgress]) -> frozenset[int]:
    """The positions of kernels that the model is no faster by: of those it can do without,
    the untried, and those that take as long as what they stand for, with what is beside
    them."""
    times = _times(kernels)
    return frozenset(
        position
        for position, kernel in enumerate(kernels)
        if kernel.optional
        and (
            not kernel.best_s
            or kernel.best_s[-1] + _beside_s(kernel, kernels) >= _together(kernel.instead_of, times)
        )
    )
