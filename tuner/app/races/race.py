"""A stored kernel raced against rivals on this machine: the race of `tuner bench`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.app.kernels.promoted import Promoted
from tuner.app.machine import checked_target
from tuner.app.platforms.table import platform_of
from tuner.db import kernels, targets
from tuner.db.engine import Database, open_database
from tuner.db.errors import NotFound
from tuner.db.kernels import Kernel
from tuner.errors import TunerError
from tuner.export.artifacts import ArtifactStore
from tuner.measure.cache import WARM, Cache
from tuner.measure.outcome import Failed
from tuner.measure.race import Contender, RaceResult, race, rival_contender
from tuner.measure.rivals.rivals import check_rival
from tuner.measure.statistics import race_median_ci95, ratio_of_medians
from tuner.measure.timing import PROMOTION, with_cache
from tuner.scratch import temporary_folder
from tuner.settings import Settings
from tuner.target.capability import target_flag
from tuner.target.target import Target
from tuner.workers.backends.table import backend_of
from tuner.workers.fleet.build_server import build
from tuner.workers.fleet.messages import BuildRequest, Problem
from tuner.workload.workload import Workload

KERNEL, DEFAULT = "kernel", "default"  # names of contenders
DEFAULT_TIMEOUT_S = 600.0  # of a run of the default schedule
# From 6 rounds on, the extremes of their medians enclose the true median with a
# probability above 95%.
ROUNDS = 7
# Rounds differ more than the samples of one round, so more samples would only take time.
# A slow default is called seven times a round.
PLAN = replace(PROMOTION, budget_s=0.2, min_samples=3, max_samples=100)


class RaceError(TunerError):
    """The kernel or the default schedule does not build, crashes, or gives wrong answers."""

    code = "race"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One contender's time."""

    name: str  # "kernel", "default", or a library's name
    median_s: float  # seconds of one call, over all rounds
    ci95_s: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """The result of a race."""

    workload: Workload
    kernel: Kernel
    entries: tuple[Entry, ...]  # the kernel first
    # Each rival's time divided by the kernel's, round by round: above 1 the kernel is faster.
    ratios: Mapping[str, float]
    absent: Mapping[str, str]  # rivals that could not take part, with the reason
    rounds: Mapping[str, tuple[tuple[float, ...], ...]]  # samples in seconds by contender and round

    @property
    def slower_percent(self) -> float:
        """By how many percent the kernel takes longer than its fastest rival.

        Negative where it is faster than all rivals.
        """
        return max((100.0 * (1.0 / ratio - 1.0) for ratio in self.ratios.values()), default=0.0)


def check_rivals(names: Sequence[str]) -> None:
    """Checks that all rivals can take part.

    Raises RivalError for one that is unknown or not installed.
    """
    for name in names:
        if name != DEFAULT:
            check_rival(name)


def promoted_kernel(
    database: Database, workload: Workload, target: Target, threads: int, cache: Cache = WARM
) -> Kernel | None:
    """The promoted kernel of a workload; None where there is none."""
    with database.read() as session:
        if targets.find(session, target.key) is None:
            return None
        return kernels.find_promoted(session, workload.key, target.key, threads, cache=cache)


def kept_kernel(workload: Workload, settings: Settings) -> Promoted | None:
    """The promoted kernel that the settings' database has for their target, to be called; None
    where it has none. Raises UsageError as `checked_target` does, DatabaseError and what
    `Promoted` raises."""
    target = checked_target(settings)
    with closing(open_database(settings.db)) as database:
        stored = promoted_kernel(database, workload, target, settings.threads)
    if stored is None:
        return None
    store = ArtifactStore(settings.artifacts)
    return platform_of(target).open(stored=stored, workload=workload, artifacts=store)


def find_kernel(
    database: Database, workload: Workload, target: Target, threads: int, cache: Cache = WARM
) -> Kernel:
    """The promoted kernel of a workload. Raises NotFound with the command that makes one."""
    kernel = promoted_kernel(database, workload, target, threads, cache)
    if kernel is None:
        written = workload.spec if workload.op is not None else "--notation FILE"
        way = f"tuner tune {written} --threads {threads}{target_flag(target)}"
        caches = "" if cache == WARM else f" and {cache} caches"
        way += "" if cache == WARM else f" --cache {cache}"
        raise NotFound(
            f"there is no kernel of {workload.spec} for {threads} thread(s){caches} on this "
            f"machine; make one: {way}"
        )
    return kernel


def race_kernel(
    workload: Workload,
    kernel: Kernel,
    target: Target,
    settings: Settings,
    rivals: Sequence[str],
    others: Sequence[Contender] = (),
) -> Race:
    """Runs the race on the first lane of the settings, or on the first GPU.

    Caches are as they were when the kernel was promoted.

    `others` are libraries with the same C interface that somebody else made. A rival
    that cannot compute the workload, or one of `others` that fails, is absent with a
    reason. Raises RaceError.
    """
    platform = platform_of(target)
    promoted = platform.open(
        stored=kernel, workload=workload, artifacts=ArtifactStore(settings.artifacts)
    )
    with (
        temporary_folder("tuner-scratch-race-") as folder,
        platform.runner(target, settings) as runner,
    ):
        runs = runner.prepare(workload, threads=kernel.threads, seed=settings.seed)
        contenders = [
            Contender(
                name=KERNEL,
                library=str(promoted.path),
                symbol=promoted.symbol,
                timeout_s=settings.run_timeout_s,
            )
        ]
        for name in dict.fromkeys(rivals):
            if name == DEFAULT:
                contenders.append(default_contender(workload, target, kernel.threads, folder))
            else:
                contenders.append(rival_contender(name))
        contenders += others
        plan = with_cache(PLAN, kernel.cache)
        return _judged(workload, kernel, race(contenders, runs, rounds=ROUNDS, plan=plan))


def _judged(workload: Workload, kernel: Kernel, result: RaceResult) -> Race:
    """Medians, intervals and ratios of a race. Raises RaceError if our own code failed."""
    for name in (KERNEL, DEFAULT):
        if name in result.failed:
            failure = result.failed[name]
            raise RaceError(
                f"the {name} of {workload.spec} failed: {failure.kind}: {failure.message}"
            )
    entries = []
    for name, rounds in result.rounds.items():
        median_s, ci95_s = race_median_ci95(rounds)
        entries.append(Entry(name=name, median_s=median_s, ci95_s=ci95_s))
    ratios = {
        name: ratio_of_medians(rounds, result.rounds[KERNEL]).value
        for name, rounds in result.rounds.items()
        if name != KERNEL
    }
    absent = {name: failure.message for name, failure in result.failed.items()}
    return Race(
        workload=workload,
        kernel=kernel,
        entries=tuple(entries),
        ratios=ratios,
        absent=absent,
        rounds=result.rounds,
    )


def default_contender(workload: Workload, target: Target, threads: int, folder: Path) -> Contender:
    """The default schedule, compiled into `folder`. Raises RaceError if it does not build."""
    problem = Problem(workload=workload, target=target, threads=threads)
    compiler = backend_of(target).compiler(problem, folder)
    built = build(compiler, BuildRequest(number=0, config=None), folder)
    if isinstance(built, Failed):
        raise RaceError(f"the default schedule of {workload.spec} does not build: {built.message}")
    return Contender(
        name=DEFAULT, library=built.path, symbol=built.symbol, timeout_s=DEFAULT_TIMEOUT_S
    )
