"""The race of chains inside their model: all nodes of a chain as one kernel, or one for each.

The library holds both, and a byte of its input says which are called. So each call differs
from the one before in nothing else, and finds its data where its model leaves them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.export.kernel import ExportKernel
from tuner.export.library import function_of
from tuner.models.arrays import Array
from tuner.models.chains import Chain, chains_of, choice_of, with_choice
from tuner.models.graph import Graph
from tuner.models.kernel_race import LONGEST_S, WORTH, is_affordable, race_s
from tuner.models.library import ModelNumbers, model_kernel
from tuner.models.library_calls import LibraryCalls
from tuner.models.profile import Spent
from tuner.models.workloads import workload_of
from tuner.runtime.link import link, toolchain_for
from tuner.target.target import Target

_SYMBOL = "chained"
_APART, _TOGETHER = [0], [1]  # settings of the library


@dataclass(frozen=True, slots=True, kw_only=True)
class RacedChain:
    """A chain inside its model. Times are of all its calls in one of the model."""

    workload: str  # key of all nodes as one
    nodes: tuple[str, ...]
    calls: int
    apart_s: float
    together_s: float
    chosen: bool  # whether it is one kernel now

    @property
    def is_faster(self) -> bool:
        return self.together_s < (1 - WORTH) * self.apart_s


@dataclass(frozen=True, kw_only=True)
class ChainRace:
    """What the race has shown. Times are medians of calls of the model, taken in turn."""

    raced: tuple[RacedChain, ...]
    chosen: tuple[Chain, ...]
    apart_s: float
    chosen_s: float

    @property
    def summary(self) -> str:
        """What was chosen, as a sentence."""
        raced = sum(each.calls for each in self.raced)
        if not self.chosen:
            return f"none of {raced} chains of nodes is faster as one kernel"
        gain = 1 - self.chosen_s / self.apart_s
        return (
            f"{len(self.chosen)} of {raced} chains of nodes are one kernel each; this gains "
            f"{100 * gain:.1f}%"
        )

    @property
    def document(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "apart_s": self.apart_s,
            "chosen_s": self.chosen_s,
            "raced": [
                {
                    "workload": each.workload,
                    "nodes": list(each.nodes),
                    "calls": each.calls,
                    "apart_s": each.apart_s,
                    "together_s": each.together_s,
                    "chosen": each.chosen,
                }
                for each in self.raced
            ],
        }


def affordable_chains(graph: Graph, target: Target, seconds: float | None) -> tuple[Chain, ...]:
    """The chains of a graph that a command of so many seconds has the time to compare."""
    if not is_affordable(race_s(graph) + chain_race_s(graph), seconds):
        return ()
    return chains_of(graph, target)


def chain_race_s(graph: Graph) -> float:
    """Seconds that a race of chains is expected to take: as long as one of kernels."""
    return race_s(graph)


def race_chains(
    graph: Graph,
    kernels: Mapping[str, ExportKernel],
    chains: Sequence[Chain],
    target: Target,
    threads: int,
    inputs: Sequence[Array],
    machine: LibraryCalls,
) -> ChainRace | None:
    """Races the chains of which there are kernels within the model; None where there are none.

    Chains of one workload are chosen together. Where only some are, these are timed once
    more without the others, and are dropped where the model is no faster by them. Raises
    LinkError, ModelRefused.
    """
    race = _Race(graph, kernels, target, threads, inputs, machine)
    entered = [chain for chain in chains if race.key(chain) in kernels]
    if not entered:
        return None
    apart, together = race.spent(entered)
    raced = race.raced(entered, apart, together)
    faster = {each.workload for each in raced if each.is_faster}
    chosen = [chain for chain in entered if race.key(chain) in faster]
    if chosen and len(chosen) < len(entered):
        apart, together = race.spent(chosen)
    if not chosen or together.whole_s >= apart.whole_s:
        chosen, together, faster = [], apart, set()
    return ChainRace(
        raced=tuple(replace(each, chosen=each.workload in faster) for each in raced),
        chosen=tuple(chosen),
        apart_s=apart.whole_s,
        chosen_s=together.whole_s,
    )


class _Race:
    """One model with the kernels of its nodes and of its chains."""

    def __init__(
        self,
        graph: Graph,
        kernels: Mapping[str, ExportKernel],
        target: Target,
        threads: int,
        inputs: Sequence[Array],
        machine: LibraryCalls,
    ) -> None:
        self.graph, self.kernels, self.target, self.threads = graph, kernels, target, threads
        self.inputs, self.machine = inputs, machine
        self.strict = replace(graph, fast=frozenset())

    def key(self, chain: Chain) -> str:
        return workload_of(chain.node, self.strict).key

    def spent(self, chains: Sequence[Chain]) -> tuple[Spent, Spent]:
        """Calls of the model with these chains apart, and with each as one, in turn."""
        built = model_kernel(
            with_choice(self.graph, chains),
            self.kernels,
            self.target,
            self.threads,
            _SYMBOL,
            ModelNumbers(),
            profiled=True,
            pack=self.machine.packed,
        )
        with tempfile.TemporaryDirectory(prefix="tuner-model-") as folder:
            path = Path(folder, "chained.so")
            tools = toolchain_for(self.target)
            path.write_bytes(link("chained", [function_of(built)], toolchain=tools))
            settings = [_APART, _TOGETHER]
            apart, together = self.machine.spent(
                path, _SYMBOL, self.inputs, settings, longest_s=LONGEST_S
            )
        return apart, together

    def raced(self, chains: Sequence[Chain], apart: Spent, together: Spent) -> list[RacedChain]:
        """The chains by workload, the largest gain first."""
        nodes = with_choice(self.graph, chains).expressions
        places = {node.outputs[0]: place for place, node in enumerate(nodes)}
        by_key: dict[str, list[Chain]] = {}
        for chain in chains:
            by_key.setdefault(self.key(chain), []).append(chain)
        raced = []
        for key, alike in by_key.items():
            names = [choice_of(chain) for chain in alike]
            raced.append(
                RacedChain(
                    workload=key,
                    nodes=tuple(part.name for part in alike[0].parts),
                    calls=len(alike),
                    apart_s=sum(apart.steps[places[n]] for _, parts in names for n in parts),
                    together_s=sum(together.steps[places[whole]] for whole, _ in names),
                    chosen=False,
                )
            )
        return sorted(raced, key=lambda each: each.together_s - each.apart_s)
