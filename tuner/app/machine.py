"""The target of a run, checked against this machine, and the lanes to measure on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from tuner.db import targets
from tuner.db.engine import Database
from tuner.errors import UsageError
from tuner.measure.assignment import Lane
from tuner.measure.core_turns import CoreTurns
from tuner.measure.energy import Counter, NoEnergyCounters, board_counter, package_counters
from tuner.measure.gpu.runner import GpuLane, GpuRunner, GpuRunnerError
from tuner.measure.gpu.visible import VisibleGpu, visible_gpus
from tuner.measure.turns import turn
from tuner.runtime.cuda_driver import CudaError, NoDriver
from tuner.settings import Settings
from tuner.target.capability import called, is_declared, refuse_unmeasured, serves
from tuner.target.detect import detect_cpu, parse_target
from tuner.target.limits import LimitsError
from tuner.target.target import Target
from tuner.workers.fleet.machine import plan_gpus, plan_machine, usable_nodes

log = logging.getLogger("tuner.limits")


def checked_target(
    settings: Settings, *, elsewhere: bool = False, on_devices: bool = False
) -> Target:
    """The target that the settings name, if this machine can measure kernels for it.

    With `elsewhere` it may be a GPU that this machine lacks: jobs then wait for a runner
    that has it. A CPU that is not this machine's needs a cluster, whose machines may have
    it, or with `on_devices` the settings' devices. Raises UsageError for an unknown target,
    for one that is not this machine's or that nothing measures, and for lanes that this
    machine does not have. Writes nothing.
    """
    target = named_target(settings)
    refuse_unmeasured(target)
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
    if on_devices and settings.device and is_declared(target):
        return target
    if is_declared(target) and not settings.address and not serves(detect_cpu(), target):
        raise UsageError(
            f"target {settings.target!r} cannot be measured on this machine, whose CPU is another, "
            f"and no kernel is promoted unmeasured; give a device that is one (tuner tune --device "
            f"'ssh HOST ./tuner-agent'), run 'tuner worker' or tune on such a machine, or take "
            f"what the estimate ranks first, unmeasured: tuner export SPEC --target "
            f"{settings.target} -o DIR"
        )
    plan_machine(
        usable_nodes(),
        threads=settings.threads,
        declared=settings.lanes,
        builders=settings.builders,
    )
    return target


def named_target(settings: Settings) -> Target:
    """The target that the settings name, whether or not this machine has it.

    Raises UsageError for one that does not exist.
    """
    return parse_target(settings.target, settings.microarchitectures)


def gpus_for(target: Target) -> tuple[GpuLane, ...]:
    """The lanes of `seen_gpus`."""
    return tuple(gpu.lane for gpu in seen_gpus(target))


def seen_gpus(target: Target) -> tuple[VisibleGpu, ...]:
    """This machine's GPUs, and slices of GPUs, that measure for the target.

    None for a CPU, and where no driver finds a device.
    """
    if not target.on_device:
        return ()
    try:
        return tuple(gpu for gpu in visible_gpus() if serves(gpu.target, target))
    except (NoDriver, CudaError, GpuRunnerError):
        return ()


def energy_counters(target: Target) -> tuple[Counter, ...]:
    """What counts the energy of this machine's kernels for a target: of its packages, or of
    the first GPU that serves it.

    Raises NoEnergyCounters, naming what is missing, and GpuRunnerError.
    """
    if not target.on_device:
        return package_counters()
    lanes = gpus_for(target)
    if not lanes:
        raise NoEnergyCounters(
            f"energy of {called(target)} is read on the machine that has it, and this one has "
            f"none; run the command there, or choose another objective"
        )
    with GpuRunner(lanes[0]) as runner:
        runner.start()
        return (board_counter(str(runner.facts["pci"])),)


def first_lane(settings: Settings, threads: int) -> Lane:
    """The first lane of this machine with so many cores, in the settings' plan.

    Raises UsageError where the machine has none.
    """
    return plan_machine(usable_nodes(), threads=threads, declared=settings.lanes).lanes[0]


def usable_threads(threads: int) -> int:
    """So many threads, or as many as this machine has cores."""
    return min(threads, sum(len(node) for node in usable_nodes()))


def with_limits(database: Database, target: Target, devices: Sequence[Lane] = ()) -> Target:
    """The target with its measured limits.

    They are those of the database; else they are measured now, which takes some seconds
    once for each machine, GPU or kind of device, and stored. Who asks meanwhile waits for
    them. A declared target has none without `devices`, and neither has a GPU that this
    machine lacks, or what does not measure them.
    """
    stored = _with_stored_limits(database, target)
    if stored is not None:
        return stored
    lane = devices[0] if devices else _limits_lane(target)
    if lane is None:
        return target
    from tuner.workers.backends.table import backend_of  # noqa: PLC0415  # loads the cost model

    with turn(f"limits-{target.key}"):
        stored = _with_stored_limits(database, target)
        if stored is not None:  # who had the turn before has measured them
            return stored
        try:
            own = () if target.on_device or devices else lane.cores
            with CoreTurns().turn(own, alone=True):
                measured = replace(target, limits=backend_of(target).limits(target, lane))
        except LimitsError as error:
            if not (target.on_device or devices):
                raise
            log.warning("kernels are tuned without limits: %s", error)
            return target
        with database.write() as session:
            targets.remember(session, measured)
        return measured


def _with_stored_limits(database: Database, target: Target) -> Target | None:
    """The target with the limits that the database has of it; None without any."""
    with database.read() as session:
        stored = targets.find(session, target.key)
    if stored is None or stored.limits is None:
        return None
    return replace(target, limits=stored.limits)


def _limits_lane(target: Target) -> Lane | None:
    """The lane of this machine that a target's limits are measured on; None without any."""
    if is_declared(target):
        return None
    if not target.on_device:
        return plan_machine(usable_nodes(), threads=1).lanes[0]
    gpus = gpus_for(target)
    return plan_gpus(usable_nodes(), gpus[:1]).lanes[0] if gpus else None
