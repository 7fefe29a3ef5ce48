"""The target of a run: what the settings name, checked against this machine, with its
measured limits from the database."""

from __future__ import annotations

from dataclasses import replace

from tuner.db import targets
from tuner.db.engine import Database
from tuner.errors import UsageError
from tuner.runtime.cuda_driver import CudaError, NoDriver, device_count
from tuner.settings import Settings
from tuner.target.capability import called, serves
from tuner.target.detect import detect_gpu, parse_target
from tuner.target.limits import measure_limits
from tuner.target.target import Target
from tuner.workers.fleet.machine import plan_machine, usable_nodes


def checked_target(settings: Settings, *, elsewhere: bool = False) -> Target:
    """The target, once it is certain that kernels of so many threads can be measured
    for it here. Writes nothing.

    With `elsewhere` also a GPU's that is not here, whose jobs wait for a runner that
    has it. Raises UsageError for an unknown target, one that is not this machine's, and
    lanes this machine does not have.
    """
    target = parse_target(settings.target)
    if target.on_device:
        if not elsewhere and not settings.address and not gpus_for(target):
            raise UsageError(
                f"target {settings.target!r} cannot be measured on this machine, which has no "
                f"such GPU; use cpu"
            )
        if settings.threads != 1:
            raise UsageError(
                f"threads is {settings.threads}; it counts cores, and kernels of "
                f"{called(target)} take 1"
            )
        return target
    plan_machine(
        usable_nodes(),
        threads=settings.threads,
        declared=settings.lanes,
        builders=settings.builders,
    )
    return target


def gpus_for(target: Target) -> tuple[int, ...]:
    """Numbers of this machine's GPUs that measure for the target; none for a CPU's, and
    where no driver finds a device."""
    if not target.on_device:
        return ()
    try:
        return tuple(
            number for number in range(device_count()) if serves(detect_gpu(number), target)
        )
    except (NoDriver, CudaError):
        return ()


def with_limits(database: Database, target: Target) -> Target:
    """The target with its limits: those stored for it, else measured now (some seconds,
    once a machine) and stored.

    A GPU's are not measured, here least of all.
    """
    if target.on_device:
        return target
    with database.read() as session:
        stored = targets.find(session, target.key)
    if stored is not None and stored.limits is not None:
        return replace(target, limits=stored.limits)
    (core, *_) = plan_machine(usable_nodes(), threads=1).lanes[0].cores
    measured = replace(target, limits=measure_limits(core))
    with database.write() as session:
        targets.remember(session, measured)
    return measured
