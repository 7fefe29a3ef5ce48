"""The race of substitutions inside their model: a chain or siblings as one kernel, or one for
each node.

The library holds both, and a byte of its input says which are called. So each call differs
from the one before in nothing else, and finds its data where its model leaves them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.export.kernel import ExportKernel
from tuner.export.library import function_of
from tuner.models.arrays import Array
from tuner.models.executors.library_calls import LibraryCalls
from tuner.models.graph import Graph
from tuner.models.library.library import ModelNumbers, model_kernel
from tuner.models.passes.chains import chains_of
from tuner.models.passes.siblings import siblings_of
from tuner.models.passes.substitutions import Kind, Substitution, choice_of, with_choice
from tuner.models.tuning.kernel_race import LONGEST_S, WORTH, is_affordable, race_s
from tuner.runtime.link import link, toolchain_for
from tuner.scratch import temporary_folder
from tuner.target.target import Target

_SYMBOL = "chained"
_APART, _TOGETHER = [0], [1]  # settings of the library
_KINDS: Mapping[Kind, str] = {"chain": "chains of nodes", "siblings": "groups of siblings"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RacedSubstitution:
    """A substitution inside its model. Times are of all its calls in one of the model.

    Those of siblings are with the nodes that read them.
    """

    workload: str  # key of the nodes as one
    kind: Kind
    nodes: tuple[str, ...]  # that it takes the place of
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

    raced: tuple[RacedSubstitution, ...]
    chosen: tuple[Substitution, ...]
    apart_s: float
    chosen_s: float

    @property
    def summary(self) -> str:
        """What was chosen, as a sentence."""
        kinds = {each.kind for each in self.raced}
        raced = sum(each.calls for each in self.raced)
        what = " and ".join(text for kind, text in _KINDS.items() if kind in kinds)
        if not self.chosen:
            return f"none of {raced} {what} is faster as one kernel"
        gain = 1 - self.chosen_s / self.apart_s
        return (
            f"{len(self.chosen)} of {raced} {what} are one kernel each; this gains "
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
                    "kind": each.kind,
                    "nodes": list(each.nodes),
                    "calls": each.calls,
                    "apart_s": each.apart_s,
                    "together_s": each.together_s,
                    "chosen": each.chosen,
                }
                for each in self.raced
            ],
        }


def affordable_chains(
    graph: Graph, target: Target, seconds: float | None
) -> tuple[Substitution, ...]:
    """The chains and siblings that a command of so many seconds has the time to compare."""
    if not is_affordable(race_s(graph) + chain_race_s(graph), seconds):
        return ()
    chains = chains_of(graph, target)
    return (*chains, *siblings_of(graph, target, chains))


def chain_race_s(graph: Graph) -> float:
    """Seconds that a race of chains is expected to take: as long as one of kernels."""
    return race_s(graph)


def race_chains(
    graph: Graph,
    kernels: Mapping[str, ExportKernel],
    chains: Sequence[Substitution],
    target: Target,
    threads: int,
    inputs: Sequence[Array],
    machine: LibraryCalls,
) -> ChainRace | None:
    """Races the chains and siblings of which there are kernels within the model; None where
    there are none.

    Those of the same workloads are chosen together. Where only some are, these are timed
    once more without the others, and are dropped where the model is no faster by them.
    Raises LinkError, ModelRefused.
    """
    keys = {id(each): tuple(made.key for made in each.workloads(graph)) for each in chains}
    entered = [each for each in chains if kernels.keys() >= {*keys[id(each)]}]
    if not entered:
        return None
    race = _Race(graph, kernels, target, threads, inputs, machine)
    apart, together = race.times(entered)
    groups: dict[tuple[str, ...], list[Substitution]] = {}
    for each in entered:
        groups.setdefault(keys[id(each)], []).append(each)
    raced = {key: _raced(key[0], alike, apart, together) for key, alike in groups.items()}
    faster = {key for key, each in raced.items() if each.is_faster}
    chosen = [each for each in entered if keys[id(each)] in faster]
    if chosen and len(chosen) < len(entered):
        apart, together = race.times(chosen)
    if not chosen or together.whole_s >= apart.whole_s:
        chosen, together, faster = [], apart, set()
    return ChainRace(
        raced=tuple(
            replace(raced[key], chosen=key in faster)
            for key in sorted(raced, key=lambda key: raced[key].together_s - raced[key].apart_s)
        ),
        chosen=tuple(chosen),
        apart_s=apart.whole_s,
        chosen_s=together.whole_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    """Seconds of a call of the model, and of each node in it by its first result."""

    whole_s: float
    nodes: Mapping[str, float]


def _raced(
    key: str, alike: Sequence[Substitution], apart: _Times, together: _Times
) -> RacedSubstitution:
    """Substitutions of the same workloads, the first of this key."""
    names = [choice_of(each) for each in alike]
    return RacedSubstitution(
        workload=key,
        kind=alike[0].kind,
        nodes=tuple(part.name for part in alike[0].parts),
        calls=len(alike),
        apart_s=sum(apart.nodes[name] for _, parts in names for name in parts),
        together_s=sum(together.nodes[name] for nodes, _ in names for name in nodes),
        chosen=False,
    )


class _Race:
    """One model with the kernels of its nodes and of its substitutions."""

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

    def times(self, substitutions: Sequence[Substitution]) -> tuple[_Times, _Times]:
        """Calls of the model with its own nodes, and with these, in turn."""
        graph = with_choice(self.graph, substitutions)
        built = model_kernel(
            graph,
            self.kernels,
            self.target,
            self.threads,
            _SYMBOL,
            ModelNumbers(),
            profiled=True,
            pack=self.machine.packed,
        )
        with temporary_folder("tuner-scratch-model-") as folder:
            path = folder / "chained.so"
            tools = toolchain_for(self.target)
            path.write_bytes(link("chained", [function_of(built)], toolchain=tools))
            settings = [_APART, _TOGETHER]
            spent = self.machine.spent(path, _SYMBOL, self.inputs, settings, longest_s=LONGEST_S)
        names = [node.outputs[0] for node in graph.expressions]
        apart, together = (
            _Times(whole_s=each.whole_s, nodes=dict(zip(names, each.steps, strict=True)))
            for each in spent
        )
        return apart, together
