"""A stored kernel raced against its rivals on the lane it was tuned for: the race of
`tuner bench`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.app.machine import gpus_for
from tuner.db import kernels, targets
from tuner.db.engine import Database
from tuner.db.errors import NotFound
from tuner.db.kernels import Kernel
from tuner.errors import TunerError
from tuner.export.artifacts import ArtifactStore
from tuner.measure.assignment import Assignment
from tuner.measure.gpu.runner import FreshProcesses, GpuLane, GpuRunner
from tuner.measure.outcome import Failed
from tuner.measure.race import Contender, RaceResult, Runs, race, rival_contender
from tuner.measure.rivals.rivals import check_rival
from tuner.measure.runner import RunnerProcess
from tuner.measure.statistics import race_median_ci95, ratio_of_medians
from tuner.measure.timing import PROMOTION
from tuner.runtime.cuda_loader import CudaLibrary
from tuner.runtime.loader import Library
from tuner.settings import Settings
from tuner.target.target import Target
from tuner.workers.backends.table import backend_of
from tuner.workers.fleet.build_server import build
from tuner.workers.fleet.machine import plan_machine, usable_nodes
from tuner.workers.fleet.messages import BuildRequest, Problem
from tuner.workload.workload import Workload

KERNEL, DEFAULT = "kernel", "default"
ROUNDS = 7  # from 6 on, the extremes of the rounds' medians enclose the true one with more than 95%
# Rounds differ by more than samples within one: more samples only take time. A slow
# default is called seven times a round.
PLAN = replace(PROMOTION, budget_s=0.2, min_samples=3, max_samples=100)


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
    ratios: Mapping[
        str, float
    ]  # each rival's time divided by the kernel's, round by round: above 1 the kernel is faster
    absent: Mapping[str, str]  # rivals that could not take part, with the reason
    rounds: Mapping[str, tuple[tuple[float, ...], ...]]  # samples in seconds by contender and round

    @property
    def slower_percent(self) -> float:
        """By how many percent the kernel takes longer than its fastest rival; negative
        where it is faster than all."""
        return max((100.0 * (1.0 / ratio - 1.0) for ratio in self.ratios.values()), default=0.0)


def check_rivals(names: Sequence[str]) -> None:
    """Raises RivalError for a rival that is unknown or not installed."""
    for name in names:
        if name != DEFAULT:
            check_rival(name)


def find_kernel(database: Database, workload: Workload, target: Target, threads: int) -> Kernel:
    """The promoted kernel. Raises NotFound saying how to get one."""
    with database.read() as session:
        stored = targets.find(session, target.key)
        kernel = (
            None
            if stored is None
            else kernels.find_promoted(session, workload.key, target.key, threads)
        )
    if kernel is None:
        written = workload.spec if workload.op is not None else "--notation FILE"
        way = f"tuner tune {written} --threads {threads}"
        raise NotFound(
            f"there is no kernel of {workload.spec} for {threads} thread(s) on this machine; "
            f"make one: {way}"
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
    """Runs the race on the settings' first lane. `others` are libraries of the same C
    interface that somebody else made.

    Raises RaceError; a library without a route, and one of `others` that fails, is
    absent, with its reason.
    """
    library = ArtifactStore(settings.artifacts).verify(kernel.artifact)
    (symbol,) = CudaLibrary(library).names if target.on_device else Library(library).signatures
    with (
        tempfile.TemporaryDirectory(prefix="tuner-race-") as folder,
        _prepared(workload, kernel, target, settings) as runner,
    ):
        contenders = [
            Contender(
                name=KERNEL, library=str(library), symbol=symbol, timeout_s=settings.run_timeout_s
            )
        ]
        for name in dict.fromkeys(rivals):
            default = name == DEFAULT
            contenders.append(
                _default(workload, target, kernel, Path(folder))
                if default
                else rival_contender(name)
            )
        contenders += others
        return _judged(workload, kernel, race(contenders, runner, rounds=ROUNDS, plan=PLAN))


@contextmanager
def _prepared(
    workload: Workload, kernel: Kernel, target: Target, settings: Settings
) -> Iterator[Runs]:
    """A runner with the workload: of the first of the machine's GPUs that serves the
    target, or of its first lane of cores."""
    gpus = gpus_for(target)
    if gpus:
        with GpuRunner(GpuLane(ordinal=gpus[0])) as device:
            device.prepare(workload, settings.seed)
            yield FreshProcesses(device)
        return
    lane = plan_machine(usable_nodes(), threads=kernel.threads, declared=settings.lanes).lanes[0]
    with RunnerProcess() as runner:
        runner.prepare(
            Assignment(workload=workload, lane=lane, threads=kernel.threads, seed=settings.seed)
        )
        yield runner


def _judged(workload: Workload, kernel: Kernel, result: RaceResult) -> Race:
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


def _default(workload: Workload, target: Target, kernel: Kernel, folder: Path) -> Contender:
    problem = Problem(workload=workload, target=target, threads=kernel.threads)
    built = build(
        backend_of(problem.target).compiler(problem, folder),
        BuildRequest(number=0, config=None),
        folder,
    )
    if isinstance(built, Failed):
        raise RaceError(f"the default schedule of {workload.spec} does not build: {built.message}")
    return Contender(name=DEFAULT, library=built.path, symbol=built.symbol, timeout_s=600.0)
