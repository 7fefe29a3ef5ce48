"""Whether a kernel that was good still is: its races over months, compared.

One race says little. Machines drift, other work disturbs, and of ten thousand kernels some
are unlucky every day. A regression is therefore seen only beyond the intervals of the
earliest races and a margin, and raised once further races in other processes agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median

from tuner.measure.statistics import Ratio, disturbed

BASE = 3  # earliest undisturbed races that later ones are compared with
MARGIN = 0.03  # beyond the intervals: kernels move by so much with the layout of memory
# Further races that must agree, before an alarm is raised or resolved. Of simulated races of
# which 2% lay badly in memory by 8%, two raised a false alarm in 120,000.
CONFIRMATIONS = 3
DEFAULT = "default"  # the default schedule among the contenders
CANARY = "canary"  # another kernel among them, whose version is its id


class Kind(StrEnum):
    SLOWER = "slower"  # than it was itself, while what it is raced against is not
    OVERTAKEN = "overtaken"  # by a library that it was not surely behind
    FAILED = "failed"  # it crashes, or its answers are no longer right


class State(StrEnum):
    SUSPECTED = "suspected"  # by a first race
    RAISED = "raised"  # by further races, too
    DISMISSED = "dismissed"  # a further race did not agree
    RESOLVED = "resolved"  # further races no longer showed what was raised


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """A contender beside the kernel in one race."""

    contender: str  # a library's name, or DEFAULT
    version: str  # installed then
    median_s: float
    ci95_s: tuple[float, float]
    ratio: Ratio  # its time divided by the kernel's: above 1 the kernel is faster

    @property
    def disturbed(self) -> bool:
        return disturbed(self.median_s, self.ci95_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceRecord:
    """A race of a served kernel against what was installed."""

    median_s: float  # of the kernel
    ci95_s: tuple[float, float]
    contests: tuple[Contest, ...]

    @property
    def disturbed(self) -> bool:
        """Whether the kernel's interval is too wide for the race to be evidence."""
        return disturbed(self.median_s, self.ci95_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a race says about one kind of regression."""

    kind: Kind
    contender: str  # that the kernel lost to; empty but for OVERTAKEN
    version: str  # of that contender
    lost: bool  # beyond the intervals and the margin
    # the kernel's time divided by what it was, or by the contender's; None for FAILED
    factor: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A regression from the first suspicion on."""

    state: State
    agreeing: int = 1  # races in a row that say so
    contrary: int = 0  # races in a row that do not, of a raised one


def evidence(before: Sequence[RaceRecord], now: RaceRecord) -> tuple[Evidence, ...]:
    """What a race says, given all earlier ones of the kernel in order of time.

    There is none for what cannot be judged: a disturbed race, or one without a base.
    """
    works = Evidence(kind=Kind.FAILED, contender="", version="", lost=False, factor=None)
    if now.disturbed:
        return (works,)
    base = [record for record in before if not record.disturbed]
    overtaken = (_overtaken(base, contest) for contest in now.contests)
    every = (works, _slower(base, now), *overtaken)
    return tuple(each for each in every if each is not None)


FAILURE = Evidence(kind=Kind.FAILED, contender="", version="", lost=True, factor=None)


def _slower(base: Sequence[RaceRecord], now: RaceRecord) -> Evidence | None:
    """Whether the kernel takes longer than it did, by the clock and beside its controls.

    The controls are contenders of the same version as then: where they are slower as well,
    the machine is. Without one nothing can be said.
    """
    first = base[:BASE]
    controls = [
        (contest, earlier)
        for contest in now.contests
        if not contest.disturbed
        and (earlier := _contests(first, contest.contender, contest.version))
    ]
    if len(first) < BASE or not controls:
        return None
    # The middle of them: one that lay badly in memory must not hide what is lost later.
    before_s = median(record.ci95_s[1] for record in first)
    by_clock = now.ci95_s[0] > before_s * (1 + MARGIN)
    beside = all(
        contest.ratio.ci95[1] * (1 + MARGIN) < median(other.ratio.ci95[0] for other in earlier)
        for contest, earlier in controls
    )
    typical_s = median(record.median_s for record in first)
    return Evidence(
        kind=Kind.SLOWER,
        contender="",
        version="",
        lost=by_clock and beside,
        factor=now.median_s / typical_s,
    )


def _overtaken(base: Sequence[RaceRecord], contest: Contest) -> Evidence | None:
    """Whether a library is surely faster now, and was not before."""
    earlier = _contests(base, contest.contender)[:BASE]
    if contest.contender in (DEFAULT, CANARY) or contest.disturbed or len(earlier) < BASE:
        return None
    was_behind = median(other.ratio.ci95[1] for other in earlier) < 1.0
    bar = min(1.0, median(other.ratio.ci95[0] for other in earlier))
    return Evidence(
        kind=Kind.OVERTAKEN,
        contender=contest.contender,
        version=contest.version,
        lost=not was_behind and contest.ratio.ci95[1] * (1 + MARGIN) < bar,
        factor=1 / contest.ratio.value,
    )


def _contests(
    records: Iterable[RaceRecord], contender: str, version: str | None = None
) -> list[Contest]:
    """The undisturbed contests with a contender, of one version or of all."""
    return [
        contest
        for record in records
        for contest in record.contests
        if contest.contender == contender
        and version in (None, contest.version)
        and not contest.disturbed
    ]


def advanced(progress: Progress | None, lost: bool) -> Progress | None:
    """How far a regression is after one more race; None where there is none.

    A suspicion is dismissed by the first race that does not agree. What was raised stays
    until as many races in a row no longer show it as were needed to raise it.
    """
    if progress is None:
        return Progress(state=State.SUSPECTED) if lost else None
    if progress.state is State.SUSPECTED:
        if not lost:
            return replace(progress, state=State.DISMISSED)
        agreeing = progress.agreeing + 1
        raised = agreeing > CONFIRMATIONS
        return Progress(state=State.RAISED if raised else State.SUSPECTED, agreeing=agreeing)
    contrary = 0 if lost else progress.contrary + 1
    resolved = contrary > CONFIRMATIONS
    return Progress(
        state=State.RESOLVED if resolved else State.RAISED,
        agreeing=progress.agreeing + lost,
        contrary=contrary,
    )
