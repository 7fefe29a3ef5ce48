"""Lane plans of this machine, from its NUMA nodes and the settings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tuner.errors import UsageError
from tuner.measure.assignment import Lane
from tuner.measure.gpu.runner import GpuLane
from tuner.workers.fleet.lanes import LanePlan, parse_cores, parse_plan, plan_lanes

SYSFS = Path("/sys/devices/system/node")
# A candidate builds at most about 8 times as long as it is timed. A builder takes 300 MB.
BUILDERS_PER_LANE = 8
# Builders that keep a lane busy with candidates that build fast; with fewer, the lane
# lends a core to a borrower.
BUSY = 3


def usable_nodes(root: Path = SYSFS) -> list[list[int]]:
    """The cores this process may use, a list for each NUMA node.

    One list if the machine does not report its nodes.
    """
    allowed = os.sched_getaffinity(0)
    nodes = []
    for path in sorted(root.glob("node[0-9]*/cpulist")):
        text = path.read_text(encoding="ascii").strip()
        cores = sorted(allowed.intersection(parse_cores(text) if text else ()))
        if cores:
            nodes.append(cores)
    return nodes if {core for node in nodes for core in node} == allowed else [sorted(allowed)]


def near(cores: Sequence[int], lane: Lane, root: Path = SYSFS) -> tuple[int, ...]:
    """The `cores` outside of the lane that share a NUMA node, and thus memory, with it."""
    nodes = [
        set(parse_cores(text))
        for path in root.glob("node[0-9]*/cpulist")
        if (text := path.read_text("ascii").strip())
    ]
    reached = (
        set().union(*(node for node in nodes if node & set(lane.cores))) if nodes else set(cores)
    )
    return tuple(core for core in cores if core in reached and core not in lane.cores)


def plan_machine(
    nodes: list[list[int]], *, threads: int, declared: str = "", builders: int = 0
) -> LanePlan:
    """The declared plan, or a detected one with a lane for each NUMA node.

    A declared plan is checked against the machine and the kernel's threads. `builders`
    limits their number. 0 means one for each core that does not measure, up to
    BUILDERS_PER_LANE for a lane, and if those are few, a borrower on each lane of a
    detected plan.
    """
    if declared:
        plan = parse_plan(declared)
        _check(plan, {core for node in nodes for core in node}, threads)
    else:
        plan = plan_lanes(nodes, threads, max_lanes=len(nodes))
    most = builders or BUILDERS_PER_LANE * len(plan.lanes)
    few = not (declared or builders or plan.alternates) and len(plan.builder_cores) < BUSY * len(
        plan.lanes
    )
    borrowers = tuple(lane.cores[0] for lane in plan.lanes) if few else ()
    return replace(plan, builder_cores=plan.builder_cores[:most], lent_cores=borrowers)


def plan_gpus(nodes: list[list[int]], gpus: tuple[GpuLane, ...], *, builders: int = 0) -> LanePlan:
    """A lane for each of these GPUs and slices, driven from a core of its own where there are
    enough; the other cores build.

    Device time is what is measured there, so a core that also builds disturbs little;
    `builders` bounds their number as above.
    """
    cores = sorted(core for node in nodes for core in node)
    held = cores[-len(gpus) :] if len(cores) > len(gpus) else cores
    free = [core for core in cores if core not in held] or cores
    lanes = tuple(
        Lane(
            name=gpu.name,
            cores=(held[index % len(held)],),
            gpu=gpu.ordinal,
            visible=gpu.visible,
        )
        for index, gpu in enumerate(gpus)
    )
    return LanePlan(
        lanes=lanes,
        builder_cores=tuple(free[: builders or BUILDERS_PER_LANE * len(lanes)]),
        alternates=False,
    )


def plan_devices(
    nodes: list[list[int]], devices: tuple[Lane, ...], *, builders: int = 0
) -> LanePlan:
    """The lanes of these devices, whose cores are their own; all cores of this machine build.

    `builders` bounds their number as above.
    """
    cores = sorted(core for node in nodes for core in node)
    return LanePlan(
        lanes=devices,
        builder_cores=tuple(cores[: builders or BUILDERS_PER_LANE * len(devices)]),
        alternates=False,
    )


def _check(plan: LanePlan, cores: set[int], threads: int) -> None:
    for core in (*plan.builder_cores, *(core for lane in plan.lanes for core in lane.cores)):
        if core not in cores:
            raise UsageError(
                f"the lane plan names core {core}; this process may use {sorted(cores)}"
            )
    for lane in plan.lanes:
        if len(lane.cores) < threads:
            raise UsageError(
                f"a kernel of {threads} threads needs a lane of {threads} cores; lane "
                f"{lane.name} has {len(lane.cores)}"
            )
