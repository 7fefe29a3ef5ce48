"""The loops that threads share: equal shares for all, and what the estimate counts of them."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from tests.support.spaces import shared_space
from tests.support.targets import ZEN5
from tuner.cost_model.cpu.nests import tables
from tuner.cost_model.cpu.work import nest_work
from tuner.spaces.program.marks import Parallel
from tuner.spaces.program.nest import parallel_prefix
from tuner.spaces.program.program import Fuse, Program, Step
from tuner.workload.expression import Axis


def shared(steps: tuple[Step, ...], block: str, extents: dict[str, int]) -> int:
    """Iterations of the block's parallel loop, 1 without one."""
    fused = {step.into: step.loops for step in steps if isinstance(step, Fuse)}
    loops = [step.loop for step in steps if isinstance(step, Parallel) and step.loop.block == block]
    return prod(extents[part.axis] for loop in loops for part in fused.get(loop, (loop,)))


@pytest.mark.parametrize(
    ("extents", "kept", "threads", "tasks"),
    [
        ((8, 4), (), 2, 8),
        ((2, 3, 5), (), 2, 30),
        ((9, 4), (), 2, 36),  # five of nine would be a ninth too much
        ((49, 2), (), 2, 49),
        ((17, 5), (), 4, 85),
        ((9, 1), (), 2, 9),
        ((3, 88), (0,), 2, 3),
        ((1, 88), (0,), 2, 88),  # nothing is lost across a loop of one iteration
        ((1, 3, 88), (0, 1), 2, 3),
        ((1, 1), (), 2, 1),
        ((8, 4), (), 1, 1),
    ],
)
def test_loops_are_fused_until_threads_have_equal_shares(
    extents: tuple[int, ...], kept: tuple[int, ...], threads: int, tasks: int
) -> None:
    axes = [Axis(name=f"i{place}", extent=extent) for place, extent in enumerate(extents)]
    steps = parallel_prefix("block", axes, threads, [axes[place] for place in kept])
    assert shared(tuple(steps), "block", {axis.name: axis.extent for axis in axes}) == tasks


@pytest.mark.parametrize(
    "spec",
    [
        "matmul:M=61,N=96,K=71",
        "conv2d:N=1,H=12,W=12,CI=8,CO=48,KH=3,KW=3,pad=1",
        "conv2d:N=1,H=14,W=14,CI=8,CO=96,KH=1,KW=1",
    ],
)
def test_the_estimate_counts_the_tasks_of_the_program(spec: str) -> None:
    """Of a sum, also where copies of parts keep loops apart."""
    space = shared_space(spec, ZEN5, threads=2)
    points = space.space.sample(np.random.default_rng(1), 120)
    counted: dict[bool, set[int]] = {False: set(), True: set()}
    for number, name in enumerate(space.sketches):
        own = points[points[:, 0] == number]
        if len(own) == 0 or len(space.sketches[name]) > 1 or space.units_of(name) == 1:
            continue
        (table,) = tables(space, name)
        tasks = nest_work(table, own, space.target).nest.tasks
        for point, estimated in zip(own, tasks, strict=True):
            config = space.space.config(point)
            modes = {str(value) for key, value in config.items() if ".copy" in key}
            if "pad_parts" in modes:
                continue
            assert estimated == _tasks(space.program(config)), config
            counted["pack" in modes].add(int(estimated))
    assert all(len(tasks) > 2 for tasks in counted.values())


def _tasks(program: Program) -> int:
    (host,) = (block for block in program.blocks if block.name.endswith("_acc"))
    return shared(program.steps, host.name, host.extents)
