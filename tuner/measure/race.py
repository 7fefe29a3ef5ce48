"""A race: contenders timed in turn (A B C, A B C, …), each time in a fresh process.

So all of them meet the same states of the machine. Kernels and libraries run the same
way, through the same runner and the same checks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    """Measures one library after the other on a prepared workload, each in a fresh process.

    A lane of cores, or of a GPU.
    """

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
    """What each contender showed, and who is promoted."""

    rounds: Mapping[str, tuple[tuple[float, ...], ...]]  # seconds by contender and process
    failed: Mapping[str, Failed]  # contenders that dropped out, with why
    max_rel_error: Mapping[str, float]
    artifacts: Mapping[str, str]  # SHA-256 of each library that raced
    decision: Decision | None  # None when no default was named, or it dropped out
    # the most of each library that tells
    workspace_bytes: Mapping[str, int] = field(default_factory=dict)


def rival_contender(name: str) -> Contender:
    """A library as a contender. Raises RivalError when it is unknown or not installed."""
    check_rival(name)
    return Contender(name=name, timeout_s=RIVAL_TIMEOUT_S)


# A contender this many times slower than the fastest is hopeless. Two calls a round say
# enough of it, in as many rounds as a decision needs. Once it is verified, only the outputs
# of its timed calls are checked. Otherwise a default of seconds a call would fill the race.
HOPELESS = 10
# Where calls of a hopeless default take this long, one round is enough: no disturbance of a
# machine can have made them so.
LONG_S = 0.02
# How much faster than the fastest a challenger must perhaps be for further rounds to be
# worth their time.
WORTH = 0.01

Progress = Callable[[int, str, Outcome], None]  # of round (from 0), contender and outcome


def race(
    contenders: Sequence[Contender],
    runner: Runs,
    *,
    rounds: int = 5,
    plan: TimingPlan = PROMOTION,
    default: str | None = None,
    incumbent: str | None = None,
    progress: Progress | None = None,
) -> RaceResult:
    """Race contenders on a prepared runner.

    Kernels are verified as for promotion in their first round. A contender that fails once
    is out, with all its rounds. A measurement whose runner was lost is repeated. A kernel
    `HOPELESS` times slower than the fastest ends after `MIN_ROUNDS`.

    With `default` named, it comes last in each round, and the result has a decision on who
    is promoted. After `MIN_ROUNDS`, contenders leave that are surely beaten, or surely no
    better than the fastest by more than `WORTH`. A hopeless default whose calls take
    `LONG_S` leaves after the first round. Raises UsageError for a race that cannot be.
    """
    _check(contenders, rounds, default)
    state = _Race(
        contenders, runner, plan=plan, default=default, incumbent=incumbent, progress=progress
    )
    for number in range(rounds):
        if not state.run_round(number):
            break
    return state.result()


class _Race:
    """A race in progress: what each contender has shown so far."""

    def __init__(
        self,
        contenders: Sequence[Contender],
        runner: Runs,
        *,
        plan: TimingPlan,
        default: str | None,
        incumbent: str | None,
        progress: Progress | None,
    ) -> None:
        # The default comes last, when it is known what is fast.
        self._contenders = sorted(contenders, key=lambda contender: contender.name == default)
        self._runner, self._plan, self._progress = runner, plan, progress
        self._default, self._incumbent = default, incumbent
        self._default_lost = False  # after a single round
        self._samples: dict[str, list[tuple[float, ...]]] = {
            contender.name: [] for contender in contenders
        }
        self._failed: dict[str, Failed] = {}
        self._errors: dict[str, float] = {}
        self._artifacts: dict[str, str] = {}
        self._workspace_bytes: dict[str, int] = {}
        self._hopeless: set[str] = set()

    def run_round(self, number: int) -> bool:
        """Measure each contender that still races; False where no two are left to."""
        decided = number >= MIN_ROUNDS
        beaten: frozenset[str] = frozenset()
        if decided and self._default is not None:
            beaten = _beaten(self._samples, {self._default, self._incumbent})
        if decided:
            lost = {self._default} if self._default_lost else set()
            if len(self._samples.keys() - beaten - lost) < 2 <= len(self._samples):
                return False
        for contender in self._contenders:
            name = contender.name
            if name in self._failed or name in beaten or (name in self._hopeless and decided):
                continue
            if not (name == self._default and self._default_lost):
                self._run(contender, number)
        return True

    def _run(self, contender: Contender, number: int) -> None:
        """Measure a contender once more and note the outcome."""
        name = contender.name
        hopeless_s = self._hopeless_s(contender)
        verification = _verification(number, name, self._default, self._hopeless)
        outcome = self._measure(contender, verification, hopeless_s)
        if number == 0 and name == self._default and not _abandoned(outcome):
            outcome = self._measure(contender, "promotion", hopeless_s)
        if self._progress is not None:
            self._progress(number, name, outcome)
        if isinstance(outcome, Failed):
            self._drop(name, outcome)
            return
        self._samples[name].append(outcome.samples_s)
        if _abandoned(outcome):
            self._hopeless.add(name)
            self._default_lost |= name == self._default and min(outcome.samples_s) >= LONG_S
        self._errors[name] = max(self._errors.get(name, 0.0), outcome.max_rel_error)
        self._artifacts[name] = outcome.artifact
        if outcome.workspace_bytes is not None:
            self._workspace_bytes[name] = max(
                outcome.workspace_bytes, self._workspace_bytes.get(name, 0)
            )

    def _hopeless_s(self, contender: Contender) -> float | None:
        """From which time on a kernel is hopeless; None where nothing is known yet.

        Libraries are always timed in full: they make their plans in their first calls.
        """
        others = (rounds for name, rounds in self._samples.items() if name != contender.name)
        fastest = min((median(samples) for rounds in others for samples in rounds), default=None)
        return None if fastest is None or contender.library is None else HOPELESS * fastest

    def _measure(
        self, contender: Contender, verification: Verification, hopeless_s: float | None
    ) -> Timed | Failed:
        request = _request(contender, self._plan, verification)
        return _measure(self._runner, replace(request, abandon_above_s=hopeless_s))

    def _drop(self, name: str, failure: Failed) -> None:
        self._failed[name] = failure
        del self._samples[name]

    def result(self) -> RaceResult:
        """The race so far, with the decision where a default was named and has not failed."""
        self._verify_remaining_default()
        rounds = {name: tuple(samples) for name, samples in self._samples.items()}
        # Only kernels can be promoted; rivals are there to be compared with.
        kernels = {contender.name for contender in self._contenders if contender.library}
        eligible = {name: samples for name, samples in rounds.items() if name in kernels}
        decision = None
        if self._default is not None and self._default in eligible:
            decision = decide(
                eligible,
                default=self._default,
                incumbent=self._incumbent,
                hopeless=self._default_lost,
            )
        return RaceResult(
            rounds=rounds,
            failed=self._failed,
            max_rel_error=self._errors,
            artifacts=self._artifacts,
            workspace_bytes=self._workspace_bytes,
            decision=decision,
        )

    def _verify_remaining_default(self) -> None:
        """Verify a hopeless default where all others have failed, so that it stays."""
        names = self._samples.keys() | self._failed.keys()
        if self._default in self._hopeless and all(
            name in self._failed for name in names if name != self._default
        ):
            outcome = self._measure(self._contenders[-1], "promotion", None)
            if isinstance(outcome, Failed):
                self._drop(self._contenders[-1].name, outcome)


def _beaten(
    samples: Mapping[str, Sequence[Sequence[float]]], holders: Collection[str | None]
) -> frozenset[str]:
    """Contenders that further rounds are not worth.

    Those that the fastest surely beats by the rounds both have, and challengers that
    are surely no better by more than `WORTH`. `holders` stay unless they are surely
    beaten.
    """
    best = min(
        samples,
        key=lambda name: median(median(round_samples) for round_samples in samples[name]),
        default=None,
    )
    if best is None:
        return frozenset()
    ratios = {
        name: ratio_of_medians(samples[best], rounds)
        for name, rounds in samples.items()
        if name != best
    }
    return frozenset(
        name
        for name, ratio in ratios.items()
        if ratio.ci95[1] < (1.0 if name in holders else 1.0 + WORTH)
    )


def _check(contenders: Sequence[Contender], rounds: int, default: str | None) -> None:
    """Raises UsageError for a race that cannot be."""
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
    """On which inputs a contender is checked in a round.

    The default at first on no more than what it is timed by: where it has lost by then,
    it needs no other check.
    """
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


def _measure(runner: Runs, request: Request) -> Timed | Failed:
    """The outcome, measured again where the runner was lost."""
    outcome: Outcome = runner.measure(request)
    for _ in range(INFRASTRUCTURE_RETRIES - 1):
        if not isinstance(outcome, Failed) or outcome.kind is not FailureKind.INFRASTRUCTURE:
            break
        outcome = runner.measure(request)
    return outcome
