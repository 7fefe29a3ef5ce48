"""Tune one workload, with MetaSchedule too if asked, and race all contenders in turn."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from benchmarks.kernels.allowance import allowance
from benchmarks.kernels.report import Row
from benchmarks.kernels.rival import METASCHEDULE, tune_rival
from tuner.app.kernels.cuda_kernel import CudaKernel
from tuner.app.kernels.kernel import Kernel
from tuner.app.machine import checked_target
from tuner.app.races.race import race_kernel
from tuner.app.tune import NoKernel, tune
from tuner.measure.race import Contender
from tuner.settings import Settings
from tuner.spaces.rewrite.algorithm import fewest_flops
from tuner.target.limits import measure_limits
from tuner.target.roofline import relative_rate
from tuner.target.target import Target
from tuner.workers.fleet.machine import plan_machine, usable_nodes
from tuner.workload.workload import Workload

PEAK_S = 1.0  # for which the machine's limits are measured before each race, and after it
KERNEL, DEFAULT = "kernel", "default"


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    workload: Workload


@dataclass(frozen=True, kw_only=True)
class Plan:
    folder: Path
    settings: Settings
    metaschedule: int  # its trials; 0: it does not take part
    rivals: tuple[str, ...]  # libraries


def contest(case: Case, plan: Plan) -> Row:
    """Tunes and races one workload."""
    settings = plan.settings
    target = checked_target(settings)
    started = time.monotonic()
    try:
        kernel = tune(
            case.workload,
            trials=settings.trials,
            seconds=settings.seconds,
            threads=settings.threads,
            db=settings.db,
        )
    except NoKernel as error:
        spent = time.monotonic() - started
        return replace(
            _row(case, _measured(target, settings), settings), tuned_s=spent, failure=str(error)
        )
    spent = time.monotonic() - started
    rival = None
    if plan.metaschedule:
        folder = plan.folder / METASCHEDULE / case.name
        rival = tune_rival(case.workload, plan.metaschedule, settings.threads, target, folder)
    row = _raced(case, kernel, target, plan, [rival.contender] if rival and rival.contender else [])
    row = replace(row, tuned_s=spent, verified=kernel.verified)
    if rival is None:
        return row
    absent = {**row.absent, METASCHEDULE: rival.why} if rival.why else row.absent
    return replace(
        row, metaschedule_trials=plan.metaschedule, metaschedule_s=rival.seconds, absent=absent
    )


def _raced(
    case: Case, kernel: Kernel | CudaKernel, target: Target, plan: Plan, others: Sequence[Contender]
) -> Row:
    """Race the kernel against its rivals.

    The default schedule takes no part. It was raced for the promotion, and would take
    most of the time here.
    """
    before = _measured(target, plan.settings)
    result = race_kernel(case.workload, kernel.stored, target, plan.settings, plan.rivals, others)
    after = _measured(target, plan.settings)
    rounds = _round_ratios(result.rounds)
    ratios = {name: median(round_ratios) for name, round_ratios in rounds.items()}
    medians = {entry.name: entry.median_s for entry in result.entries}
    if kernel.default_median_s is not None:
        medians[DEFAULT] = kernel.default_median_s
        ratios[DEFAULT] = kernel.default_median_s / kernel.median_s
    return replace(
        _row(case, _between(before, after), plan.settings),
        median_s=medians,
        ci95_s={entry.name: entry.ci95_s for entry in result.entries},
        ratios=ratios,
        rounds=rounds,
        absent=dict(result.absent),
    )


def _round_ratios(rounds: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, tuple[float, ...]]:
    """Each contender's median over the kernel's, round by round.

    A hopeless contender has fewer rounds.
    """
    own = [median(samples) for samples in rounds[KERNEL]]
    return {
        name: tuple(median(samples) / ours for samples, ours in zip(times, own, strict=False))
        for name, times in rounds.items()
        if name != KERNEL
    }


def _measured(target: Target, settings: Settings) -> Target:
    (core, *_) = plan_machine(usable_nodes(), threads=1, declared=settings.lanes).lanes[0].cores
    return replace(target, limits=measure_limits(core, PEAK_S))


def _between(before: Target, after: Target) -> Target:
    """A target with the means of the limits of both.

    Clocks of shared machines drift by a tenth in a minute.
    """
    first, last = before.limits, after.limits
    assert first is not None and last is not None
    bandwidth = tuple(
        replace(
            earlier,
            read=(earlier.read + later.read) / 2,
            write=(earlier.write + later.write) / 2,
            copy=(earlier.copy + later.copy) / 2,
        )
        for earlier, later in zip(first.bandwidth, last.bandwidth, strict=True)
    )
    flops = (first.fma_flops + last.fma_flops) / 2
    return replace(before, limits=replace(first, fma_flops=flops, bandwidth=bandwidth))


def _row(case: Case, target: Target, settings: Settings) -> Row:
    expression = case.workload.expression
    dtype = expression.inputs[0].dtype if expression.inputs else "float32"
    assert target.limits is not None
    threads = min(settings.threads, target.cores)
    allowed = allowance(case.workload, target, threads)
    return Row(
        name=case.name,
        spec=case.workload.spec,
        notation=case.workload.notation if case.workload.op is None else None,
        bound="memory" if allowed.by_memory else "compute",
        flops=fewest_flops(case.workload, target),
        threads=settings.threads,
        trials=settings.trials,
        tuned_s=0.0,
        peak_flops=target.limits.fma_flops * relative_rate(dtype, target) * threads,
        allowed_s=allowed.seconds,
        median_s={},
        ci95_s={},
        ratios={},
        machine=target.name,
        date=datetime.now(UTC).date().isoformat(),
    )
