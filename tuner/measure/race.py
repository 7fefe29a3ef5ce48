"""A race: contenders timed in turn (A B C, A B C, …), each time in a fresh process, so
that all meet the same machine.

Kernels and libraries run the same way, through the same runner and the same checks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Protocol

from tuner.errors import UsageError
from tuner.measure.assignment import Request, Verification
from tuner.measure.outcome import Failed, FailureKind, Outcome, Timed
from tuner.measure.rivals.rivals import RIVALS, check_rival
from tuner.measure.statistics import MIN_ROUNDS, Decision, decide, ratio_of_medians
from tuner.measure.timing import PROMOTION, TimingPlan

INFRASTRUCTURE_RETRIES = 3
RIVAL_TIMEOUT_S = 120.0  # importing a large library in each fresh process


class Runs(Protocol):
    """Measures one library after the other on a prepared workload, each in a fresh
    process: a lane of cores, or of a GPU."""

    def measure(self, request: Request) -> Outcome: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A kernel by its library and symbol, or a rival by its name alone."""

    name: str  # unique in the race: "trial 12", "default", "numpy"
    library: str | None = None
    symbol: str = ""
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceResult:
    rounds: Mapping[
        str, tuple[tuple[float, ...], ...]
    ]  # samples in seconds by contender and process
    failed: Mapping[str, Failed]  # contenders that dropped out, with why
    max_rel_error: Mapping[str, float]
    artifacts: Mapping[str, str]  # SHA-256 of each library that raced
    decision: Decision | None  # None when no default was named, or it dropped out


def rival_contender(name: str) -> Contender:
    """A library as a contender. Raises RivalError when it is unknown or not installed."""
    check_rival(name)
    return Contender(name=name, timeout_s=RIVAL_TIMEOUT_S)


# Times the fastest so far. Of a contender as slow as that, two calls a round say
# enough, in as many rounds as a decision needs; once verified, only the outputs of its
# timed calls are checked. Where both are long besides, what disturbs a machine cannot
# have made them so: one round is enough. A default of seconds a call would be all the
# race did otherwise.
HOPELESS, LONG_S = 10, 0.02
# how much faster a challenger must perhaps be than the fastest, for further rounds to
# be worth their time
WORTH = 0.01


def race(
    contenders: Sequence[Contender],
    runner: Runs,
    *,
    rounds: int = 5,
    plan: TimingPlan = PROMOTION,
    default: str | None = None,
    incumbent: str | None = None,
    progress: Callable[[int, str, Outcome], None] | None = None,
) -> RaceResult:
    """Races on a prepared runner. Libraries are verified as for promotion in the first round.

    A contender that fails once is out, all its rounds with it; a lost runner is tried
    again; a kernel `HOPELESS` times slower than the fastest ends after `MIN_ROUNDS`.
    With `default` named, it comes last in each round, who is surely beaten after
    `MIN_ROUNDS`, or surely no better than the fastest by more than `WORTH`, takes no
    part in further ones, nor does a hopeless default whose calls take `LONG_S` after
    the first, and the decision says who is promoted. `progress` is told (round from 0,
    contender, outcome). Raises UsageError for a race that cannot be.
    """
    _check(contenders, rounds, default)
    samples: dict[str, list[tuple[float, ...]]] = {contender.name: [] for contender in contenders}
    failed: dict[str, Failed] = {}
    errors: dict[str, float] = {}
    artifacts: dict[str, str] = {}
    hopeless: set[str] = set()
    lost = False  # the default, after a single round
    ordered = sorted(
        contenders, key=lambda contender: contender.name == default
    )  # what is fast is known by then
    for number in range(rounds):
        beaten = (
            _beaten(samples, {default, incumbent})
            if default is not None and number >= MIN_ROUNDS
            else frozenset()
        )
        if number >= MIN_ROUNDS and len(
            samples.keys() - beaten - ({default} if lost else set())
        ) < 2 <= len(samples):
            break
        for contender in ordered:
            name = contender.name
            if (
                name in failed
                or name in beaten
                or (name == default and lost)
                or (name in hopeless and number >= MIN_ROUNDS)
            ):
                continue
            others = (found for other, found in samples.items() if other != name)
            fastest = min((median(one) for found in others for one in found), default=None)
            # The first calls of a library say little: it makes its plans in them.
            hopeless_s = (
                None if fastest is None or contender.library is None else HOPELESS * fastest
            )
            outcome = _measure(
                runner,
                contender,
                plan,
                _verification(number, contender.name, default, hopeless),
                hopeless_s,
            )
            if number == 0 and contender.name == default and not _abandoned(outcome):
                outcome = _measure(runner, contender, plan, "promotion", hopeless_s)
            if progress is not None:
                progress(number, contender.name, outcome)
            if isinstance(outcome, Failed):
                failed[contender.name] = outcome
                del samples[contender.name]
                continue
            samples[contender.name].append(outcome.samples_s)
            if _abandoned(outcome):
                hopeless.add(contender.name)
                lost |= contender.name == default and min(outcome.samples_s) >= LONG_S
            errors[contender.name] = max(errors.get(contender.name, 0.0), outcome.max_rel_error)
            artifacts[contender.name] = outcome.artifact
    if default in hopeless and all(
        other in failed for other in samples.keys() | failed.keys() if other != default
    ):
        verified = _measure(runner, ordered[-1], plan, "promotion", None)  # it stands after all
        if isinstance(verified, Failed):
            failed[ordered[-1].name] = verified
            del samples[ordered[-1].name]
    kept = {name: tuple(found) for name, found in samples.items()}
    # Only kernels can be promoted; rivals are there to be compared with.
    eligible = {
        contender.name: kept[contender.name]
        for contender in contenders
        if contender.library and contender.name in kept
    }
    decision = None
    if default is not None and default in eligible:
        decision = decide(eligible, default=default, incumbent=incumbent, hopeless=lost)
    return RaceResult(
        rounds=kept, failed=failed, max_rel_error=errors, artifacts=artifacts, decision=decision
    )


def _beaten(
    samples: Mapping[str, Sequence[Sequence[float]]], holders: Collection[str | None]
) -> frozenset[str]:
    """Those that the fastest surely beats by the rounds both have, and challengers that
    are surely no better by more than `WORTH`; `holders` stay unless they are surely
    beaten, which more rounds may show."""
    best = min(samples, key=lambda name: median(median(one) for one in samples[name]), default=None)
    if best is None:
        return frozenset()
    ratios = {
        name: ratio_of_medians(samples[best], found)
        for name, found in samples.items()
        if name != best
    }
    return frozenset(
        name
        for name, ratio in ratios.items()
        if ratio.ci95[1] < (1.0 if name in holders else 1.0 + WORTH)
    )


def _check(contenders: Sequence[Contender], rounds: int, default: str | None) -> None:
    names = [contender.name for contender in contenders]
    if not names or len(set(names)) != len(names):
        raise UsageError(
            f"a race needs contenders of different names, got {', '.join(names) or 'none'}"
        )
    if rounds < 1 or (default is not None and rounds < MIN_ROUNDS):
        raise UsageError(f"{rounds} rounds are too few; a promotion needs at least {MIN_ROUNDS}")
    if default is not None and default not in names:
        raise UsageError(f"the default {default!r} is not among the contenders {', '.join(names)}")
    for contender in contenders:
        if contender.library is None and contender.name not in RIVALS:
            check_rival(contender.name)


def _verification(
    number: int, name: str, default: str | None, hopeless: Collection[str]
) -> Verification:
    """Of the default at first no more than what it is timed by: where it has lost
    already, it needs no other check."""
    if number == 0:
        return "timed" if name == default else "promotion"
    return "timed" if name in hopeless else "screening"


def _abandoned(outcome: Outcome) -> bool:
    return isinstance(outcome, Timed) and outcome.conditions.abandoned


def _request(contender: Contender, plan: TimingPlan, verification: Verification) -> Request:
    request = Request(name=contender.name, timeout_s=contender.timeout_s, plan=plan)
    if contender.library is None:
        return replace(request, rival=contender.name)
    return replace(
        request, library=contender.library, symbol=contender.symbol, verification=verification
    )


def _measure(
    runner: Runs,
    contender: Contender,
    plan: TimingPlan,
    verification: Verification,
    hopeless_s: float | None,
) -> Timed | Failed:
    request = replace(_request(contender, plan, verification), abandon_above_s=hopeless_s)
    outcome: Outcome = runner.measure(request)
    for _ in range(INFRASTRUCTURE_RETRIES - 1):
        if not isinstance(outcome, Failed) or outcome.kind is not FailureKind.INFRASTRUCTURE:
            break
        outcome = runner.measure(request)
    return outcome
