"""What timings say and how surely: medians, ratios of contenders, the winner.

Pure functions. Timings are skewed and disturbed, so samples are summarised by medians
and order statistics, which assume no distribution. Processes differ (where memory lies,
which pages it got) by more than samples within one. So contenders are compared by the
medians of their rounds, each in a fresh process, and paired round by round: what slows
a whole round cancels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import atan, comb, exp, inf, log, pi, sqrt
from statistics import fmean, median, stdev

CONFIDENCE = 0.95
MIN_ROUNDS = 3  # fresh processes a decision needs
# Width of a 95% interval, of its median, above which something else disturbed the timings.
QUIET_WIDTH = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times slower the first of two contenders is; below 1 it is faster."""

    value: float
    ci95: tuple[float, float]

    @property
    def surely_faster(self) -> bool:
        return self.ci95[1] < 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Who is promoted, and why."""

    winner: str
    reason: str  # for people
    ratios: Mapping[str, Ratio]  # of each other contender to the one that would stay


def median_ci95(samples: Sequence[float]) -> tuple[float, float]:
    """An interval that encloses the distribution's median with at least 95% confidence.

    Its ends are order statistics, which need no assumption but independence: the number
    of samples below the median is binomial with 1/2. With fewer than 6 samples even the
    extremes enclose it less surely, and are returned. Raises ValueError for no samples.
    """
    if not samples:
        raise ValueError("no samples: there is no median")
    ordered = sorted(samples)
    rank = _rank(len(ordered))
    return ordered[rank], ordered[-1 - rank]


def disturbed(median_s: float, ci95_s: tuple[float, float]) -> bool:
    """Whether the interval of a race is too wide for its median to be relied on.

    On a quiet machine the 95% interval of a race is a few percent wide; beside other work
    one was 149 to 299 us for a kernel that takes 146.
    """
    return ci95_s[1] - ci95_s[0] > QUIET_WIDTH * median_s


@cache
def _rank(count: int) -> int:
    """The greatest rank whose tail stays within 2.5%, at least 0.

    The tail is P(fewer than rank + 1 of `count` samples are below the median).
    """
    # Exact integers: as a float, 2**count overflows beyond 1,023 samples.
    rank, tail, limit = 0, 1, int(Fraction(1 - CONFIDENCE) / 2 * 2**count)
    while True:
        tail += comb(count, rank + 1)
        if tail > limit or 2 * (rank + 1) >= count:
            return rank
        rank += 1


def ratio_of_medians(first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]) -> Ratio:
    """The ratio of two contenders by their rounds.

    A round is the samples of one process, in seconds; the n-th of one contender is
    paired with the n-th of the other. The ratio is the geometric mean of the rounds'
    ratios of medians, with Student's interval of their logarithms. A contender that
    ended earlier is compared by the rounds that it has.

    Raises ValueError where one has no rounds. A single round has an unbounded interval.
    """
    if not first or not second:
        raise ValueError(f"{len(first)} and {len(second)} rounds cannot be paired")
    logs = [log(median(a) / median(b)) for a, b in zip(first, second, strict=False)]
    centre = fmean(logs)
    if len(logs) == 1:
        return Ratio(value=exp(centre), ci95=(0.0, inf))
    half = student_quantile(0.5 + CONFIDENCE / 2, len(logs) - 1) * stdev(logs) / sqrt(len(logs))
    return Ratio(value=exp(centre), ci95=(exp(centre - half), exp(centre + half)))


def race_median_ci95(rounds: Sequence[Sequence[float]]) -> tuple[float, tuple[float, float]]:
    """A contender's median seconds, with their interval.

    The median is that of all samples. The interval encloses what samples and rounds
    each allow.
    """
    samples = [sample for entry in rounds for sample in entry]
    low, high = median_ci95(samples)
    medians = [median(entry) for entry in rounds]
    return median(samples), (min(low, *medians), max(high, *medians))


def decide(
    rounds: Mapping[str, Sequence[Sequence[float]]],
    *,
    default: str,
    incumbent: str | None = None,
    hopeless: bool = False,
) -> Decision:
    """Who is promoted.

    The default stays unless the incumbent surely beats it. Whichever stays may be
    beaten by a challenger.

    `rounds` holds each contender's samples in seconds, by fresh process. "Surely" means
    that the 95% interval of the ratio is below 1, over at least `MIN_ROUNDS` rounds.
    Only the fastest challenger is tried, since many challengers must not be many
    chances for luck. It is chosen by all rounds of the challengers, of which the
    default may have run few. `hopeless`: the default is so much slower that whoever
    else ran to the end surely beats it, after one round already. Raises ValueError when
    the default is missing or there are too few rounds.
    """
    if default not in rounds:
        raise ValueError(f"the default {default!r} did not race")
    if len(rounds[default]) < MIN_ROUNDS and not hopeless:
        raise ValueError(
            f"{len(rounds[default])} rounds are too few to decide; at least {MIN_ROUNDS} are needed"
        )
    stays = default
    if incumbent is not None and incumbent in rounds:
        surely = hopeless or ratio_of_medians(rounds[incumbent], rounds[default]).surely_faster
        stays = incumbent if surely else default
    ratios = {
        name: ratio_of_medians(rounds[name], rounds[stays]) for name in rounds if name != stays
    }
    challengers = {name: ratio for name, ratio in ratios.items() if name != default}
    if not challengers:
        return Decision(winner=stays, reason="nothing else raced", ratios=ratios)
    best = _fastest({name: rounds[name] for name in challengers})
    low, high = challengers[best].ci95
    measured = (
        f"{best} takes {challengers[best].value:.3f} (95%: {low:.3f} to {high:.3f}) of "
        f"the time of {stays}"
    )
    if hopeless and stays == default:
        measured = (
            f"{best} takes {challengers[best].value:.2g} of the time of {stays}, which "
            f"took no part in further rounds"
        )
        return Decision(winner=best, reason=measured, ratios=ratios)
    if challengers[best].surely_faster:
        return Decision(winner=best, reason=measured, ratios=ratios)
    return Decision(winner=stays, reason=f"{measured}: not surely faster", ratios=ratios)


def _fastest(rounds: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """The fastest contender, each compared with one that ran to the end."""
    last = max(rounds.values(), key=len)
    return min(rounds, key=lambda name: ratio_of_medians(rounds[name], last).value)


@cache
def student_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t for 0.5 <= probability < 1.

    By bisection of its distribution function.
    """
    low, high = 0.0, 1.0
    while student_cdf(high, freedom) < probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def student_cdf(t: float, freedom: int) -> float:
    """P(T <= t) for a whole number of degrees of freedom.

    The finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    theta, cos2 = atan(t / sqrt(freedom)), freedom / (freedom + t * t)
    sine, term, total = t / sqrt(freedom + t * t), 1.0, 0.0
    if freedom % 2 == 0:
        for k in range(freedom // 2):
            total += term
            term *= cos2 * (2 * k + 1) / (2 * k + 2)
        return 0.5 + sine * total / 2
    for k in range((freedom - 1) // 2):
        total += term
        term *= cos2 * (2 * k + 2) / (2 * k + 3)
    return 0.5 + (theta + sine * sqrt(cos2) * total) / pi
