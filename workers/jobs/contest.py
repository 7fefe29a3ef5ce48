"""The race that decides a promotion: the best trials, the incumbent and the default schedule.

The best of many noisy measurements is too good to be true. The race therefore measures
again, in fresh processes, on inputs that no trial has seen, while nothing builds, and
decides by medians with confidence intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from uuid import uuid4

from tuner.db import jobs, kernels
from tuner.db.kernels import Kernel
from tuner.errors import TunerError
from tuner.export.artifacts import ArtifactCorrupt, ArtifactMissing, ArtifactStore
from tuner.export.signature import Signer
from tuner.measure.outcome import Timed, Trial, kept_pace
from tuner.workers.fleet.handle import FleetError
from tuner.workers.fleet.messages import (
    BuildFinalists,
    BuildRequest,
    Built,
    Contestant,
    Library,
    RaceOutcome,
    RunRace,
)
from tuner.workers.fleet.shipping import discard
from tuner.workers.jobs.smaller_trials import on_front
from tuner.workers.jobs.task import TaskRun

FINALISTS = 4  # best trials with different code that take part, beside default and incumbent
# Where cores changed their speed: of 27 that were raced again, the fastest were the 4th
# and the 7th by trials.
UNSTEADY_FINALISTS = 12
# Limit on a race beyond its kernels' own time; preparing large references takes longest.
RACE_S = 300.0
# Limit on the wait for its answer, which the fleet gives in any case: it has deadlines for the
# lane's preparation (six minutes on a busy machine) before the race, and for the race.
ANSWER_S = 1500.0
BUILD_S = 60.0  # limit on one finalist's build; a patient one's is as many times longer
# Of a build or race that lost its worker, and of a race whose incumbent changed meanwhile.
ATTEMPTS = 3
DEFAULT, INCUMBENT = "default", "incumbent"


class NothingVerified(TunerError):
    """Not even the default schedule computes the right answer; there is no kernel."""

    code = "nothing_verified"


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """What a promotion needs."""

    run: TaskRun
    best: Sequence[Trial]  # timed trials, fastest first
    artifacts: ArtifactStore
    check: Callable[[], None]  # raises when the work is to stop
    signer: Signer | None = None  # of what goes into the store
    canary: bool = False  # whether a champion stays until the winner has won again
    finalists: int | None = None  # at most, where time is short; None: as many as help
    # All trials of the task, where objectives beside time choose among them.
    trials: Sequence[Trial] = ()
    # returns once this process computes nothing that a race of so many contestants would notice
    quiet: Callable[[int], None] = lambda contestants: None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A contestant and its provenance: a trial, or the incumbent kernel."""

    contestant: Contestant
    library: Library | None  # built now; None for the incumbent
    trial: Trial | None
    kernel: Kernel | None = None


@dataclass(frozen=True, kw_only=True)
class Contest:
    """A race that is over, with those who took part."""

    entries: Sequence[Entry]
    race: RaceOutcome
    built: ExitStack  # once closed, what was built for the race is gone


def contested(promotion: Promotion) -> Contest:
    """Races the finalists; with the default schedule where nobody wins without.

    Raises NothingVerified where there is none to race, and FleetError.
    """
    # The kernels of a model are many, and the calls of some defaults take seconds.
    with_default = not distinct(promotion.best, 1) or (
        promotion.run.default_fits and promotion.run.job.kind != jobs.MODEL
    )
    with ExitStack() as built:
        entries = _entries(promotion, with_default, built)
        race = _race(promotion, entries) if entries else None
        if race is None or (race.winner is None and not with_default):
            entries = _entries(promotion, True, built)
            race = _race(promotion, entries)
        return Contest(entries=entries, race=race, built=built.pop_all())


def distinct(best: Sequence[Trial], count: int) -> list[Trial]:
    """The fastest trials with distinct code, without the default and abandoned ones."""
    chosen: dict[str, Trial] = {}
    for trial in best:
        outcome = trial.outcome
        if isinstance(outcome, Timed) and trial.config and not outcome.conditions.abandoned:
            chosen.setdefault(outcome.artifact, trial)
    return list(chosen.values())[:count]


def _entries(promotion: Promotion, with_default: bool, built: ExitStack) -> list[Entry]:
    """The contestants; there is none where no finalist builds and the default is left out.

    What they are built as is deleted with `built`.
    """
    run = promotion.run
    count = FINALISTS if kept_pace(promotion.best) else UNSTEADY_FINALISTS
    if promotion.finalists is not None:
        count = min(count, promotion.finalists)
    fastest = distinct(promotion.best, count)
    smaller = on_front(promotion.trials, run.job.goal, fastest)
    trials = [*([None] if with_default else []), *fastest, *smaller]
    requests = [
        BuildRequest(number=number, config=trial.config if trial else None, keep=uuid4().hex)
        for number, trial in enumerate(trials)
    ]
    results = [each.result for each in _build(promotion, tuple(requests))]
    for result in results:
        if isinstance(result, Library):
            built.callback(discard, result)
    entries = []
    for trial, result in zip(trials, results, strict=True):
        if isinstance(result, Library):
            name = DEFAULT if trial is None else f"trial {trial.number}"
            contestant = Contestant(name=name, path=result.path, symbol=result.symbol)
            entries.append(Entry(contestant=contestant, library=result, trial=trial))
        elif trial is None:
            raise NothingVerified(
                f"the default schedule of {run.problem.workload.spec} does not build: "
                f"{result.message}"
            )
    if not entries:
        return []
    with run.database.read() as session:
        kernel = kernels.find_promoted(
            session,
            run.problem.workload.key,
            run.problem.target.key,
            run.problem.threads,
            cache=run.problem.cache,
        )
    incumbent = _incumbent(promotion, kernel, entries) if kernel is not None else []
    if kernel is not None and incumbent:  # the same code would only race against itself
        entries = [
            entry
            for entry in entries
            if entry.trial is None
            or entry.library is None
            or entry.library.sha256 != kernel.artifact
        ]
    return entries + incumbent


def _incumbent(promotion: Promotion, kernel: Kernel, entries: Sequence[Entry]) -> list[Entry]:
    """The incumbent as a contestant; none if its library is lost."""
    try:
        path = promotion.artifacts.verify(kernel.artifact)
    except (ArtifactMissing, ArtifactCorrupt):
        return []
    symbol = entries[0].contestant.symbol  # it depends on the workload alone
    contestant = Contestant(name=INCUMBENT, path=str(path), symbol=symbol)
    return [Entry(contestant=contestant, library=None, trial=None, kernel=kernel)]


def _build(promotion: Promotion, requests: tuple[BuildRequest, ...]) -> tuple[Built, ...]:
    error: str | None = None
    for _ in range(ATTEMPTS):
        answer = promotion.run.measurer.request_control(
            BuildFinalists(requests=requests),
            timeout_s=BUILD_S * sum(request.patience for request in requests),
            check=promotion.check,
        )
        error = answer.error
        if error is None:
            return tuple(part for part in answer.value if isinstance(part, Built))
    raise FleetError(f"the finalists could not be built: {error}")


def _race(promotion: Promotion, entries: Sequence[Entry]) -> RaceOutcome:
    incumbent = INCUMBENT if any(entry.kernel for entry in entries) else None
    contestants = tuple(entry.contestant for entry in entries)
    default = DEFAULT if any(contestant.name == DEFAULT for contestant in contestants) else None
    control = RunRace(
        contestants=contestants, default=default or incumbent, incumbent=incumbent, limit_s=RACE_S
    )
    promotion.quiet(len(contestants))
    error: str | None = None
    for _ in range(ATTEMPTS):
        answer = promotion.run.measurer.request_control(
            control, timeout_s=ANSWER_S, check=promotion.check
        )
        error = answer.error
        for outcome in answer.value:
            if isinstance(outcome, RaceOutcome):
                return outcome
    raise FleetError(f"the race could not be run: {error}")
