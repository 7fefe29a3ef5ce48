"""What PyTorch modules take on a target, as the layers that a search chooses among."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from tuner.app.estimates import estimate
from tuner.app.jobs.lifecycle import run, submit
from tuner.app.machine import checked_target, with_limits
from tuner.app.tune import NoKernel
from tuner.db import jobs
from tuner.db.engine import Database, open_database
from tuner.errors import UsageError
from tuner.models.exported_program import read_exported
from tuner.models.workloads import ModelWorkload, workloads_of
from tuner.settings import Settings, load_settings
from tuner.workers.jobs.progress import Observer, unobserved

Source = Literal["measured", "estimated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLatency:
    """Seconds of a module's kernels, one after the other, with an interval.

    The ends of the interval are the sums of its kernels' ends, so it is wider than it
    would be if their errors were independent.
    """

    median_s: float
    low_s: float
    high_s: float
    source: Source  # measured: all of its kernels were


def latencies(
    modules: Sequence[Any],
    inputs: Sequence[Any],
    *,
    trials: int | None = None,
    seconds: float | None = None,
    threads: int | None = None,
    target: str | None = None,
    db: str | None = None,
    observer: Observer = unobserved,
) -> list[LayerLatency]:
    """What each `torch.nn.Module` takes in inference on tensors as `inputs` are.

    A module that only hands its inputs on takes no time. The times are those of the
    database's kernels, or are estimated from them. With `trials` or `seconds`, kernels
    that were not measured are tuned first, as one job: `trials` are for each kernel on
    average, `seconds` for all. What else is None comes from the settings.

    Raises UsageError; ModelRefused for a module with an operator that has no expression;
    TooFewKernels where nothing is tuned and there is too little to estimate from; NoKernel
    where the job fails.
    """
    given = {
        "trials": trials,
        "seconds": seconds,
        "threads": threads,
        "target": target,
        "db": db,
    }
    settings = load_settings(given, given_as="argument {}").values
    parts = [_kernels(module, inputs) for module in modules]
    database = open_database(settings.db)
    try:
        if trials is not None or seconds is not None:
            _tune(database, parts, settings, observer)
        return _estimated(database, parts, settings)
    finally:
        database.close()


def _kernels(module: Any, inputs: Sequence[Any]) -> Sequence[ModelWorkload]:
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"a {type(module).__name__} is no torch.nn.Module; wrap it in one")
    if isinstance(inputs, torch.Tensor):
        raise UsageError("inputs is a tensor; give a list of those that each module takes")
    training = module.training
    try:
        program = torch.export.export(module.eval(), tuple(inputs))
    finally:
        module.train(training)
    return workloads_of(read_exported(program))


def _tune(
    database: Database,
    parts: Sequence[Sequence[ModelWorkload]],
    settings: Settings,
    observer: Observer,
) -> None:
    distinct = {kernel.workload.key: kernel.workload for part in parts for kernel in part}
    if not distinct:
        return
    target = with_limits(database, checked_target(settings))
    job = submit(database, list(distinct.values()), target, settings, improve=False)
    report = run(database, job.id, settings, observer=observer)
    if report.job.state != jobs.SUCCEEDED:
        raise NoKernel(f"job {job.id} of the layers {report.job.state}: {report.job.error}")


def _estimated(
    database: Database, parts: Sequence[Sequence[ModelWorkload]], settings: Settings
) -> list[LayerLatency]:
    asked = [kernel for part in parts for kernel in part]
    items = (
        iter(estimate(database, [each.workload for each in asked], settings).items)
        if asked
        else iter(())
    )
    result = []
    for part in parts:
        answers = [(next(items), kernel.calls) for kernel in part]
        measured = all(item.source == "measured" for item, _ in answers)
        result.append(
            LayerLatency(
                median_s=sum(item.median_s * calls for item, calls in answers),
                low_s=sum(item.low_s * calls for item, calls in answers),
                high_s=sum(item.high_s * calls for item, calls in answers),
                source="measured" if measured else "estimated",
            )
        )
    return result
