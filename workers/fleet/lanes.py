"""Lane plans: which cores of a machine measure, and which build.

While a lane measures, its cores belong to its runner alone. If few builders feed it, a
borrower builds on one of its cores in between. If a kernel needs every core, building and
measuring alternate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tuner.errors import UsageError
from tuner.measure.assignment import Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePlan:
    """How a machine's cores are used.

    Lanes are disjoint; builders share a core with a lane only if `alternates`.
    """

    lanes: tuple[Lane, ...]
    builder_cores: tuple[int, ...]  # ascending; one builder for each
    alternates: bool  # building and measuring take turns, because a lane needs every core
    # cores of lanes, each with an additional builder, which builds while its lane is idle
    lent_cores: tuple[int, ...] = ()


def ranges(cores: Sequence[int]) -> str:
    """Cores as people write them: (0, 1, 2, 5) is "0-2,5"."""
    if not cores:
        return ""
    breaks = [
        0,
        *(index + 1 for index, (left, right) in enumerate(pairwise(cores)) if right != left + 1),
        len(cores),
    ]
    parts = [(cores[start], cores[stop - 1]) for start, stop in pairwise(breaks)]
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def parse_cores(text: str) -> tuple[int, ...]:
    """The inverse of `ranges`. Raises UsageError, also if a core is named twice."""
    cores: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(
                f"{part.strip()!r} is no core; write cores as numbers and ranges, e.g. 0-3,6"
            )
        cores.extend(range(int(first), int(last if dash else first) + 1))
    if len(set(cores)) != len(cores):
        raise UsageError(f"cores {text!r} name a core twice")
    return tuple(sorted(cores))


def lane(cores: Sequence[int]) -> Lane:
    """The lane of these cores, named by them."""
    ordered = tuple(sorted(cores))
    return Lane(name=f"cpu:{ranges(ordered)}", cores=ordered)


def plan_lanes(nodes: Sequence[Sequence[int]], threads: int, *, max_lanes: int = 1) -> LanePlan:
    """Lanes of `threads` cores each, taken from the end; the rest builds.

    `nodes` are the usable cores of each NUMA node. A lane stays within one node where
    the node has enough cores. At least half of the cores are kept for building while
    more than one lane could be made: a candidate takes longer to build than to time.
    """
    cores = sorted(core for node in nodes for core in node)
    if not 1 <= threads <= len(cores):
        raise UsageError(
            f"a kernel of {threads} threads needs a lane of {threads} cores; this process may "
            f"use 1 to {len(cores)}"
        )
    if threads == len(cores):
        return LanePlan(lanes=(lane(cores),), builder_cores=tuple(cores), alternates=True)
    count = max(1, min(max_lanes, len(cores) // (2 * threads)))
    free = [sorted(node) for node in nodes if node]
    lanes: list[Lane] = []
    for _ in range(count):
        home = max(reversed(free), key=len)  # lanes spread over the nodes, the last one first
        if len(home) < threads:
            break
        lanes.append(lane(home[-threads:]))
        del home[-threads:]
    if not lanes:  # no node is large enough: the lane spans nodes
        lanes.append(lane(cores[-threads:]))
        free = [cores[:-threads]]
    return LanePlan(
        lanes=tuple(lanes),
        builder_cores=tuple(sorted(core for node in free for core in node)),
        alternates=False,
    )


def parse_plan(text: str) -> LanePlan:
    """A declared plan, such as "lanes=2-3/4-5;builders=0-1".

    Lanes are separated by a slash; the builders' cores follow. Raises UsageError.
    """
    fields = dict(part.strip().partition("=")[::2] for part in text.split(";") if part.strip())
    if set(fields) != {"lanes", "builders"}:
        raise UsageError(
            f"lane plan {text!r} must give lanes and builders, e.g. lanes=2-3/4-5;builders=0-1"
        )
    lanes = tuple(lane(parse_cores(part)) for part in fields["lanes"].split("/"))
    builders = parse_cores(fields["builders"])
    lane_cores = [core for measuring in lanes for core in measuring.cores]
    if len(set(lane_cores)) != len(lane_cores):
        raise UsageError(
            f"lane plan {text!r} gives a core to two lanes; a lane's cores are its own"
        )
    shared = sorted(set(lane_cores) & set(builders))
    if shared and not (len(lanes) == 1 and set(builders) <= set(lane_cores)):
        raise UsageError(
            f"core {shared[0]} of lane plan {text!r} both builds and measures; only a single "
            f"lane of all cores takes turns"
        )
    return LanePlan(lanes=lanes, builder_cores=builders, alternates=bool(shared))
