"""The loop nest of one group: its blocks, their buffers and the steps on them."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.spaces.program.loop_tree import LoopTree
from tuner.spaces.program.loops import LoopId, loops_of
from tuner.spaces.program.marks import Parallel
from tuner.spaces.program.program import Block, Buffer, Fuse, Step
from tuner.workload.expression import Axis

# Tasks of each thread that even out what single ones take.
TASKS = 4
# How many twentieths of its share the busiest thread may have.
MOST = 21


@dataclass(frozen=True, slots=True)
class Nest:
    """What a sketch makes of one group."""

    blocks: tuple[Block, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    tree: LoopTree | None = None  # in place of blocks and steps


def are_enough(tasks: int, threads: int) -> bool:
    """Whether so many equal tasks keep the threads busy: several for each, in shares that
    differ little."""
    most = -(-tasks // threads) * threads
    return tasks >= TASKS * threads and 20 * most <= MOST * tasks


def parallel_prefix(block: str, axes: list[Axis], threads: int, keep: list[Axis]) -> list[Step]:
    """Steps that run the outermost loops on the threads of the pool.

    Loops are fused until there are tasks enough, never across a loop in `keep` that has
    more than one iteration.
    """
    if threads == 1 or not axes:
        return []
    chosen: list[Axis] = []
    tasks = 1
    for axis in axes:
        chosen.append(axis)
        tasks *= axis.extent
        if are_enough(tasks, threads) or (axis in keep and axis.extent > 1):
            break
    if tasks == 1:
        return []
    names = loops_of(block, chosen)
    if len(names) == 1:
        return [Parallel(loop=names[0])]
    return [
        Fuse(loops=names, into=LoopId(block, "parallel")),
        Parallel(loop=LoopId(block, "parallel")),
    ]
