"""A foreign kernel judged on this machine, in turn with the kernel that is stored here."""

from __future__ import annotations

from pathlib import Path

from tuner.app.kernels.promoted import Promoted
from tuner.app.machine import checked_target, first_lane, gpus_for, with_limits
from tuner.app.platforms.table import platform_of
from tuner.app.races.race import DEFAULT, default_contender, promoted_kernel
from tuner.db.engine import Database
from tuner.errors import UsageError
from tuner.export.artifacts import ArtifactStore
from tuner.export.naming import symbol_of
from tuner.measure.assignment import Placement
from tuner.measure.foreign.dimensions import Dimensions
from tuner.measure.foreign.examination import Contestant
from tuner.measure.foreign.judgement import judge_source
from tuner.measure.foreign.verdict import Verdict
from tuner.measure.gpu.examination import judge_cuda
from tuner.measure.gpu.runner import GpuRunner
from tuner.scratch import temporary_folder
from tuner.settings import Settings
from tuner.target.target import Target
from tuner.workers.fleet.messages import Problem
from tuner.workers.jobs.verdicts import within_limits
from tuner.workload.workload import Workload

INCUMBENT = "incumbent"


def judged(
    database: Database,
    workload: Workload,
    source: str,
    settings: Settings,
    *,
    race: bool,
    launch: Dimensions | None = None,
) -> Verdict:
    """The verdict on a C text, on the first lane of the settings.

    With `launch` on CUDA C++, on the first GPU. Raises UsageError where the target is none of
    the source's, and for what `judge_source` and `judge_cuda` refuse.
    """
    target = checked_target(settings)
    if target.on_device != (launch is not None):
        raise UsageError(
            f"target {settings.target!r} is a GPU, and the source is C; give CUDA C++ with its "
            f"grid and block, or use the target cpu"
            if target.on_device
            else f"target {settings.target!r} is a CPU, and the source is CUDA C++; use the target "
            f"cuda"
        )
    with temporary_folder("tuner-scratch-rival-") as folder:
        rival = _rival(database, workload, target, settings, folder) if race else None
        symbol, timeout_s = symbol_of(workload), settings.run_timeout_s
        if launch is None:
            lane = first_lane(settings, settings.threads)
            placement = Placement(lane=lane, threads=settings.threads)
            verdict = judge_source(
                workload, source, symbol, placement, rival=rival, timeout_s=timeout_s
            )
        else:
            with GpuRunner(gpus_for(target)[0]) as runner:
                verdict = judge_cuda(
                    workload,
                    source,
                    symbol,
                    target,
                    launch,
                    runner,
                    rival=rival,
                    timeout_s=timeout_s,
                )
    if verdict.time is None:
        return verdict
    problem = Problem(workload=workload, target=with_limits(database, target), threads=1)
    return within_limits(verdict, problem)


def _rival(
    database: Database, workload: Workload, target: Target, settings: Settings, folder: Path
) -> Contestant:
    """The stored kernel, else the default schedule, compiled into the folder."""
    stored = promoted_kernel(database, workload, target, settings.threads)
    if stored is None:
        default = default_contender(workload, target, settings.threads, folder)
        return Contestant(
            name=DEFAULT, library=default.library or "", symbol=default.symbol, foreign=False
        )
    kernel: Promoted = platform_of(target).open(
        stored=stored, workload=workload, artifacts=ArtifactStore(settings.artifacts)
    )
    return Contestant(name=INCUMBENT, library=str(kernel.path), symbol=kernel.symbol, foreign=False)
