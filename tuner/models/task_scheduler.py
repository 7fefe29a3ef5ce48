"""Which kernel of a model gets the next round of trials.

Each kernel has a first round. After that the round goes to the kernel whose next trials
promise to save most of the model's time. The promise is the gradient of Ansor's task
scheduler (Zheng et al., "Ansor", OSDI 2020, section 6.2). It combines what a kernel
gained lately with what it could gain at best. The latter is bounded by the rate that
similar kernels reach.

A kernel may have a variant under fast numerics. Strict variants have their first rounds
before all fast ones, so that a model can always be assembled. The slower of two variants
saves nothing until it is faster than the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    variant_of: str = ""  # the key that strict and fast variant share; empty without another
    fast: bool = False  # whether the numerics are fast
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

    Kernels without a round come first, strict ones before fast ones, the one with the
    most work before the others.
    """
    left = [position for position, kernel in enumerate(kernels) if not kernel.finished]
    fresh = [position for position in left if not kernels[position].best_s]
    if fresh:
        return max(
            fresh,
            key=lambda position: (
                not kernels[position].fast,
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

    Of two variants of a kernel the faster counts.
    """
    variants: dict[str, float] = {}
    for number, kernel in enumerate(kernels):
        if kernel.best_s:
            key = kernel.variant_of or str(number)
            variants[key] = min(variants.get(key, kernel.seconds), kernel.seconds)
    return sum(variants.values())


def gain_per_trial(kernel: KernelProgress, kernels: Sequence[KernelProgress]) -> float:
    """Seconds of the model's time that one more trial is expected to save, at least 0."""
    trials = max(kernel.trials, 1)
    variants = [
        other.best_s[-1]
        for other in kernels
        if other.best_s and kernel.variant_of and other.variant_of == kernel.variant_of
    ]
    best_s = min((kernel.best_s[-1], *variants))  # what the model takes now
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


def needless_variants(kernels: Sequence[KernelProgress]) -> frozenset[int]:
    """The positions of fast variants that are not faster than the strict ones, or untried."""
    strict_s = {
        kernel.variant_of: kernel.best_s[-1]
        for kernel in kernels
        if kernel.best_s and not kernel.fast
    }
    return frozenset(
        position
        for position, kernel in enumerate(kernels)
        if kernel.fast
        and kernel.variant_of in strict_s
        and (not kernel.best_s or kernel.best_s[-1] >= strict_s[kernel.variant_of])
    )
