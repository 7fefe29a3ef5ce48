"""Which nodes of a model are computed under fast numerics, so that its outputs stay right.

A node is either strict or fast; fast ones take less time and add to the outputs' error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.models.graph import Graph
from tuner.models.passes.substitutions import Substitution, substitution_workloads
from tuner.models.reference.accuracy import tolerance_of
from tuner.models.workloads import ModelWorkload, with_fast_variants, workloads_of
from tuner.target.target import Target
from tuner.workload.workload import ModelNumerics

Measure = Callable[[Sequence[frozenset[str]]], Sequence[float]]
"""The outputs' error for each choice of fast nodes, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericsPolicy:
    """What a model's user allows."""

    fast: bool = False  # whether nodes may have fast numerics
    max_error: float | None = None  # of the outputs; None: what their dtypes account for

    @classmethod
    def of(cls, numerics: ModelNumerics | None, max_error: float | None) -> NumericsPolicy:
        """By the settings. A bound alone lets nodes be fast."""
        return cls(
            fast=numerics == "fast" or (numerics is None and max_error is not None),
            max_error=max_error,
        )

    def bound(self, graph: Graph) -> float:
        """The error that the outputs may have against the evaluation in float64."""
        return tolerance_of(graph) if self.max_error is None else self.max_error

    def tolerance(self, graph: Graph) -> float:
        """The error they may have against another evaluator, which rounds as it pleases."""
        return max(tolerance_of(graph), self.max_error or 0.0)

    def workloads(
        self, graph: Graph, target: Target, chains: Sequence[Substitution] = ()
    ) -> Sequence[ModelWorkload]:
        """What is to be tuned for a strict graph: all its workloads, fast variants, and what
        chains and siblings need."""
        parts = with_fast_variants(graph, target) if self.fast else workloads_of(graph)
        keys = {part.workload.key for part in parts}
        joint = substitution_workloads(graph, chains)
        return [*parts, *(part for part in joint if part.workload.key not in keys)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTimes:
    """Seconds that a node with two variants takes in one call of the model."""

    label: str  # for people: its kernel and the shapes of what that reads
    strict_s: float
    fast_s: float

    @property
    def saved_s(self) -> float:
        return self.strict_s - self.fast_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A choice of fast nodes, and what it would give."""

    fast: frozenset[str]
    seconds: float  # the sum of the nodes' times within the model
    error: float  # largest one of an output, relative to its greatest value


@dataclass(frozen=True, kw_only=True)
class NumericsChoice:
    """The choices that were tried, the strict one first, and the one that was made."""

    bound: float
    nodes: Mapping[str, NodeTimes]
    tried: tuple[Tried, ...]
    chosen: Tried

    @property
    def summary(self) -> str:
        """What was chosen, as a sentence."""
        most = max(len(tried.fast) for tried in self.tried)
        return (
            f"{len(self.chosen.fast)} of {most} calls that are faster so have fast numerics; "
            f"error {self.chosen.error:.1e}, {self.bound:.1e} is allowed"
        )

    @property
    def document(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "max_error": self.bound,
            "nodes": [
                {
                    "node": name,
                    "label": times.label,
                    "strict_s": times.strict_s,
                    "fast_s": times.fast_s,
                }
                for name, times in self.nodes.items()
            ],
            "tried": [
                {
                    "fast": sorted(tried.fast),
                    "seconds": tried.seconds,
                    "max_rel_error": tried.error,
                    "chosen": tried is self.chosen,
                }
                for tried in self.tried
            ],
        }


def choose_numerics(
    nodes: Mapping[str, NodeTimes], others_s: float, bound: float, measure: Measure
) -> NumericsChoice:
    """The fast nodes that save most while the error stays within the bound.

    It begins with all nodes that are faster so. Above the bound, the error of each node
    being fast by itself is measured, and those that save the least time for the error
    that they add are strict again, one after the other, until the error is within.
    `others_s` is the time of the nodes without a choice. All strict is the choice where
    even that is above the bound.
    """
    tried: list[Tried] = []

    def attempt(choices: Sequence[frozenset[str]]) -> list[Tried]:
        results = [
            Tried(fast=fast, seconds=_seconds(nodes, others_s, fast), error=error)
            for fast, error in zip(choices, measure(choices), strict=True)
        ]
        tried.extend(results)
        return results

    faster = [name for name, times in nodes.items() if times.saved_s > 0]
    choices = [frozenset[str](), frozenset(faster)] if faster else [frozenset[str]()]
    strict, *all_of_them = attempt(choices)
    if not all_of_them or all_of_them[0].error <= bound or strict.error > bound:
        within = all_of_them and all_of_them[0].error <= bound
        chosen = all_of_them[0] if within else strict
        return NumericsChoice(bound=bound, nodes=nodes, tried=tuple(tried), chosen=chosen)
    alone = attempt([frozenset({name}) for name in faster]) if len(faster) > 1 else []
    added = {
        name: max(single.error - strict.error, 0.0)
        for name, single in zip(faster, alone, strict=False)
    }
    order = sorted(faster, key=lambda name: _worth(nodes[name], added.get(name, 0.0)))
    # The error of the last is above the bound, that of `chosen` within; halved each time.
    above, chosen = 0, strict
    within_count = len(order)
    while within_count - above > 1:
        middle = (above + within_count) // 2
        (result,) = attempt([frozenset(order[middle:])])
        if result.error <= bound:
            within_count, chosen = middle, result
        else:
            above = middle
    return NumericsChoice(bound=bound, nodes=nodes, tried=tuple(tried), chosen=chosen)


def _worth(times: NodeTimes, added: float) -> float:
    """Seconds saved for the error that the node adds by itself."""
    return times.saved_s / added if added > 0 else math.inf


def _seconds(nodes: Mapping[str, NodeTimes], others_s: float, fast: frozenset[str]) -> float:
    return others_s + sum(
        times.fast_s if name in fast else times.strict_s for name, times in nodes.items()
    )
