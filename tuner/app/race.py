"""A race of a stored kernel against its rivals: rounds in which each runs once, in turn, in a fresh process on the same cores."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from db import kernels, targets
from db.engine import Database
from db.errors import NotFound
from db.kernels import Kernel
from tuner.errors import TunerError
from tuner.export.artifacts import ArtifactStore
from tuner.measure.assignment import Assignment, Lane, Request
from tuner.measure.outcome import Failed, Timed
from tuner.measure.rivals import check_rival
from tuner.measure.runner import RunnerProcess
from tuner.measure.timing import PROMOTION
from tuner.runtime.loader import Library
from tuner.settings import Settings
from tuner.target.target import Target
from tuner.workload.workload import Workload
from workers.build_server import build
from workers.machine import plan_machine, usable_nodes
from workers.messages import BuildRequest, Problem

KERNEL, DEFAULT = "kernel", "default"
# The least and the greatest of n medians enclose the true one with probability 1 - 2^(1 - n) (the sign test's interval): from 6
# rounds on at least 96.9%.
ROUNDS = 7
MAX_ROUND_S = 60.0  # of one contestant: its checks on all inputs, then some 0.3 s of timing


class RaceError(TunerError):
    """The kernel, or the default schedule, does not build, crashes or gives a wrong answer."""

    code = "race"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    name: str  # "kernel", "default", or a library's
    median_s: float  # seconds of one call, over all rounds
    ci95_s: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    workload: Workload
    kernel: Kernel
    entries: tuple[Entry, ...]  # the kernel first
    absent: dict[str, str]  # rivals that could not take part, with the reason

    @property
    def ratios(self) -> dict[str, float]:
        """Each rival's time divided by the kernel's: above 1 the kernel is faster."""
        return {entry.name: entry.median_s / self.entries[0].median_s for entry in self.entries[1:]}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contestant:
    name: str
    library: str | None = None  # path; None for a rival
    symbol: str = ""


def check_rivals(names: Sequence[str]) -> None:
    """Raises RivalError for a rival that is unknown or not installed."""
    for name in names:
        if name != DEFAULT:
            check_rival(name)


def find_kernel(database: Database, workload: Workload, target: Target, threads: int) -> Kernel:
    """The promoted kernel. Raises NotFound saying how to get one."""
    with database.read() as session:
        known = targets.find(session, target.key)
        found = None if known is None else kernels.find_promoted(session, workload.key, target.key, threads)
    if found is None:
        raise NotFound(
            f"no kernel of {workload.spec} for {threads} thread(s) here; make one: tuner tune {workload.spec} --threads {threads}"
        )
    return found


def race(workload: Workload, kernel: Kernel, target: Target, settings: Settings, rivals: Sequence[str]) -> Race:
    """Runs the race on the settings' first lane. Raises RaceError; a library without a route is absent, with its reason."""
    lane = plan_machine(usable_nodes(), threads=kernel.threads, declared=settings.lanes).lanes[0]
    library = ArtifactStore(settings.artifacts).verify(kernel.artifact)
    (symbol,) = Library(library).signatures
    with tempfile.TemporaryDirectory(prefix="tuner-race-") as folder, RunnerProcess() as runner:
        contestants = [_Contestant(name=KERNEL, library=str(library), symbol=symbol)]
        for name in dict.fromkeys(rivals):
            contestants.append(_default(workload, target, kernel, Path(folder)) if name == DEFAULT else _Contestant(name=name))
        runner.prepare(
            Assignment(workload=workload, lane=Lane(name=lane.name, cores=lane.cores), threads=kernel.threads, seed=settings.seed)
        )
        return _run(runner, contestants, workload, kernel)


def _run(runner: RunnerProcess, contestants: list[_Contestant], workload: Workload, kernel: Kernel) -> Race:
    rounds: dict[str, list[Timed]] = {one.name: [] for one in contestants}
    absent: dict[str, str] = {}
    for number in range(ROUNDS):
        for one in contestants:
            if one.name in absent:
                continue
            outcome = runner.measure(_request(one, check=number == 0))
            if isinstance(outcome, Failed):
                if one.library is not None:
                    raise RaceError(f"{one.name} of {workload.spec} failed: {outcome.kind}: {outcome.message}")
                absent[one.name] = outcome.message
            else:
                rounds[one.name].append(outcome)
    entries = tuple(_entry(name, timed) for name, timed in rounds.items() if name not in absent)
    return Race(workload=workload, kernel=kernel, entries=entries, absent=absent)


def _request(one: _Contestant, *, check: bool) -> Request:
    """The first round checks on all kinds of inputs, the others on those that are timed."""
    return Request(
        name=one.name,
        library=one.library,
        symbol=one.symbol,
        rival=None if one.library else one.name,
        timeout_s=MAX_ROUND_S,
        verification="promotion" if check else "screening",
        plan=PROMOTION,
    )


def _entry(name: str, rounds: Sequence[Timed]) -> Entry:
    medians = [timed.median_s for timed in rounds]
    return Entry(name=name, median_s=median(medians), ci95_s=(min(medians), max(medians)))


def _default(workload: Workload, target: Target, kernel: Kernel, folder: Path) -> _Contestant:
    problem = Problem(workload=workload, target=target, threads=kernel.threads)
    built = build(problem, BuildRequest(number=0, config=None), folder)
    if isinstance(built, Failed):
        raise RaceError(f"the default schedule of {workload.spec} does not build: {built.message}")
    return _Contestant(name=DEFAULT, library=built.path, symbol=built.symbol)
