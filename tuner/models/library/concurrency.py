"""Independent nodes side by side, each on a thread of its own: inter-operator parallelism.

A kernel of several threads loses where it has little to share: a step of a recurrence, a
small branch. If such nodes do not depend on each other, a thread for each may be faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tuner.models.graph import Graph
from tuner.models.nodes import calls, reads_of

FORK_S = 3e-6  # handing lanes to threads that spin, and waiting for them
WORTH = 0.1  # of the nodes' time, which a fork must be expected to save
LONGEST = 48  # nodes of a fork


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """Consecutive nodes of a graph, in lanes. No lane needs what another one computes."""

    start: int  # position of the first among the graph's nodes
    lanes: tuple[tuple[int, ...], ...]  # positions of nodes, each lane in the graph's order

    @property
    def end(self) -> int:
        """The position behind the last node."""
        return self.start + sum(map(len, self.lanes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """The forks of a model, and what they gain. Times are medians of calls of the model."""

    forks: tuple[Fork, ...]
    sequential_s: float
    concurrent_s: float

    @property
    def summary(self) -> str:
        """What runs side by side, as a sentence."""
        nodes = sum(fork.end - fork.start for fork in self.forks)
        gain = 1 - self.concurrent_s / self.sequential_s
        return (
            f"{nodes} independent nodes run side by side, in {len(self.forks)} groups; this gains "
            f"{100 * gain:.1f}%"
        )

    @property
    def document(self) -> dict[str, object]:
        """All of it as JSON values."""
        return {
            "sequential_s": self.sequential_s,
            "concurrent_s": self.concurrent_s,
            "forks": [[list(lane) for lane in fork.lanes] for fork in self.forks],
        }


def node_seconds(graph: Graph, seconds: Sequence[float]) -> list[float]:
    """The seconds of each of the graph's own nodes, from those of its expressions."""
    remaining = iter(seconds)
    return [sum(next(remaining) for _ in calls([node])) for node in graph.nodes]


def is_sequential(graph: Graph) -> bool:
    """Whether each node needs the one before, so that nothing can run side by side."""
    needs = _needs(graph)
    return all(position - 1 in needs[position] for position in range(1, len(needs)))


def forks_of(
    graph: Graph, together_s: Sequence[float], alone_s: Sequence[float], threads: int
) -> tuple[Fork, ...]:
    """The forks by which a call takes the least time, as far as times of nodes tell.

    `together_s` are the seconds of each node on all threads, `alone_s` on one. The parts
    of a fork that depend on each other share a lane. Which nodes to fork is found by
    dynamic programming over the order of the graph.
    """
    needs, count = _needs(graph), len(graph.nodes)
    best_s, choice = [math.inf] * count + [0.0], [Fork(start=0, lanes=())] * count
    for start in reversed(range(count)):
        best_s[start] = together_s[start] + best_s[start + 1]
        for fork, fork_s in _candidates(needs, alone_s, start, threads):
            saved_s = sum(together_s[start : fork.end]) - fork_s
            if saved_s < WORTH * (saved_s + fork_s):
                continue
            if fork_s + best_s[fork.end] < best_s[start]:
                best_s[start], choice[start] = fork_s + best_s[fork.end], fork
    forks, position = [], 0
    while position < count:
        fork = choice[position]
        if fork.lanes:
            forks.append(fork)
        position = fork.end if fork.lanes else position + 1
    return tuple(forks)


def _needs(graph: Graph) -> list[set[int]]:
    """For each node the positions of the nodes whose results it reads."""
    writers: dict[str, int] = {}
    needs: list[set[int]] = []
    for position, node in enumerate(graph.nodes):
        roots = {graph.root(name) for name in reads_of(node)}
        needs.append({writers[root] for root in roots if root in writers})
        writers |= dict.fromkeys(map(graph.root, node.outputs), position)
    return needs


def _candidates(
    needs: Sequence[set[int]], alone_s: Sequence[float], start: int, threads: int
) -> Iterator[tuple[Fork, float]]:
    """Forks that begin at `start`, with their seconds."""
    parts: list[_Part] = []
    for position in range(start, min(start + LONGEST, len(needs))):
        joined = [part for part in parts if needs[position] & part.nodes]
        merged = _Part(seconds=alone_s[position], nodes={position})
        for part in joined:
            merged.seconds += part.seconds
            merged.nodes |= part.nodes
        parts = [part for part in parts if part not in joined] + [merged]
        if len(parts) > 1:
            lanes = _balanced(parts, threads)
            nodes = (tuple(sorted(lane.nodes)) for lane in lanes)
            fork_s = max(lane.seconds for lane in lanes) + FORK_S
            yield Fork(start=start, lanes=tuple(sorted(nodes))), fork_s


@dataclass(slots=True, eq=False)
class _Part:
    """Nodes that one thread computes."""

    seconds: float = 0.0
    nodes: set[int] = field(default_factory=set)


def _balanced(parts: Sequence[_Part], threads: int) -> list[_Part]:
    """The parts in a lane for each thread: the longest first, into the shortest lane.

    Graham, "Bounds on Multiprocessing Timing Anomalies", 1969.
    """
    lanes = [_Part() for _ in range(min(threads, len(parts)))]
    for part in sorted(parts, key=lambda part: -part.seconds):
        lane = min(lanes, key=lambda lane: lane.seconds)
        lane.seconds += part.seconds
        lane.nodes |= part.nodes
    return lanes
