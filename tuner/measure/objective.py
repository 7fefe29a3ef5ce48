"""What a kernel is chosen by: objectives beside time, and the Pareto front of two.

Search, promotion, lookup, export and dashboard all read this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import TypeVar

from tuner.errors import UsageError
from tuner.target.target import Target

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a kernel takes and gives; None where it was not measured."""

    median_s: float | None = None  # of a call
    workspace_bytes: int | None = None  # memory for temporaries, over all threads
    code_bytes: int | None = None  # machine code
    calls_per_s: float | None = None  # of as many instances as the cores have room for
    energy_j: float | None = None  # of a call


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One row of the table."""

    name: str  # as users write it
    title: str  # for people; `field` names its unit
    field: str  # of `Figures`
    most: bool = False  # whether more is better
    # Of one that is known of every trial: what is too little to be worth time. A search
    # minimises time × (1 + figure / grain).
    grain: float | None = None
    # Whether it is measured after promotion, on all cores, while nothing else runs.
    on_idle_machine: bool = False

    def figure(self, figures: Figures) -> float | None:
        value: float | None = getattr(figures, self.field)
        return value

    def cost(self, figures: Figures) -> float:
        """The figure so that less is better, and what was not measured is worst."""
        value = self.figure(figures)
        return inf if value is None else -value if self.most else value


TIME = Objective(name="time", title="time of a call", field="median_s")
THROUGHPUT = Objective(
    name="throughput",
    title="calls a second",
    field="calls_per_s",
    most=True,
    on_idle_machine=True,
)
PAGE_BYTES, LINE_BYTES = 4096.0, 64.0
MEMORY = Objective(name="memory", title="workspace", field="workspace_bytes", grain=PAGE_BYTES)
CODE_SIZE = Objective(name="code_size", title="machine code", field="code_bytes", grain=LINE_BYTES)
ENERGY = Objective(name="energy", title="energy of a call", field="energy_j", on_idle_machine=True)
OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {each.name: each for each in (TIME, THROUGHPUT, MEMORY, CODE_SIZE, ENERGY)}
)
MOST = 2  # objectives of a front


def objective_choices() -> str:
    """The names as a sentence has them."""
    *others, last = OBJECTIVES
    return f"{', '.join(others)} or {last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What kernels are chosen by: one objective, or the front of two."""

    objectives: tuple[Objective, ...] = (TIME,)

    @property
    def text(self) -> str:
        return ",".join(each.name for each in self.objectives)

    @property
    def is_front(self) -> bool:
        return len(self.objectives) > 1

    @property
    def on_idle_machine(self) -> bool:
        return any(each.on_idle_machine for each in self.objectives)

    @property
    def any_threads(self) -> bool:
        """Whether kernels of all thread counts are compared where none is asked for."""
        return THROUGHPUT in self.objectives

    @property
    def of_trials(self) -> tuple[Objective, ...]:
        """The objectives beside time that every trial tells: those a search can follow."""
        return tuple(each for each in self.objectives if each.grain is not None)

    def search_cost_s(self, seconds: float, figures: Figures) -> float:
        """What a search minimises: `seconds` of a call, each further figure as a factor.

        So to halve one is worth as much as to halve the other.
        """
        cost_s = seconds
        for each in self.of_trials:
            assert each.grain is not None
            cost_s *= 1.0 + (each.figure(figures) or 0.0) / each.grain
        return cost_s


FASTEST = Goal()


class NotMeasured(UsageError):
    """No kernel of a workload has the figure that an objective compares."""

    code = "not_measured"


def check_goal(goal: Goal, target: Target) -> None:
    """Raises UsageError for what is not measured of a target's kernels."""
    if goal == FASTEST or not (target.on_device or target.declared):
        return
    if target.on_device and set(goal.objectives) <= {TIME, ENERGY}:
        return
    kind = "a GPU" if target.on_device else "a declared CPU"
    ways = f"{TIME.name} or {ENERGY.name}" if target.on_device else TIME.name
    raise UsageError(
        f"objective is {goal.text}, and {target.name} is {kind}, of whose kernels that is not "
        f"measured; give {ways}"
    )


def refuse_beside_work(goal: Goal) -> None:
    """Raises UsageError for what is measured while nothing else runs, which a service cannot."""
    if goal.on_idle_machine:
        refuse_goal(goal, "a service measures beside other work; tuner tune there measures it")


def refuse_goal(goal: Goal, what: str) -> None:
    """Raises UsageError for objectives beside time where kernels are chosen by time alone."""
    if goal != FASTEST:
        raise UsageError(f"objective is {goal.text}, and {what}; give {TIME.name}")


def goal_of(text: str) -> Goal:
    """The goal of `OBJECTIVE` or `OBJECTIVE,OBJECTIVE`. Raises UsageError."""
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if name not in OBJECTIVES:
            raise UsageError(
                f"unknown objective {name[:40]!r}; it is {objective_choices()}, or two of them "
                f"with a comma"
            )
    if len(names) > MOST or len(set(names)) < len(names):
        raise UsageError(
            f"objective is {text[:80]!r}; give one, or {MOST} different ones for their Pareto front"
        )
    return Goal(objectives=tuple(OBJECTIVES[name] for name in names))


def front(
    items: Sequence[Item],
    objectives: Sequence[Objective],
    figures: Callable[[Item], Figures],
) -> list[Item]:
    """The items that no other is at least as good as in everything and better in something.

    In the order of the first objective, the best first; of equals the first given. Those
    without one of the figures are left out.
    """
    costs = [tuple(each.cost(figures(item)) for each in objectives) for item in items]
    order = sorted(
        (place for place, cost in enumerate(costs) if inf not in cost),
        key=lambda place: (costs[place], place),
    )
    kept: list[int] = []
    for place in order:
        # Whoever is better comes earlier in the order.
        if not any(dominates(costs[other], costs[place]) for other in kept):
            kept.append(place)
    return [items[place] for place in kept]


def dominates(costs: Sequence[float], others: Sequence[float]) -> bool:
    """Whether nothing of `costs` is more than of `others`. Equal ones dominate each other."""
    return all(mine <= theirs for mine, theirs in zip(costs, others, strict=True))


def chosen(
    items: Sequence[Item],
    goal: Goal,
    figures: Callable[[Item], Figures],
    *,
    within: float | None = None,
) -> list[Item]:
    """The best item by an objective, or the front of two; empty where none was measured so.

    `within`: those that take longer than the fastest by more than this share are left out
    before. Of equals the fastest is the best.
    """
    timed = [(figures(item).median_s, item) for item in items]
    least_s = min((seconds for seconds, _ in timed if seconds is not None), default=inf)
    if within is not None:
        limit_s = least_s * (1.0 + within)
        items = [item for seconds, item in timed if seconds is not None and seconds <= limit_s]
    if goal.is_front:
        return front(items, goal.objectives, figures)
    (objective,) = goal.objectives
    return front(items, (objective, TIME), figures)[:1]
